"""`experiment`: run an experiment that tests a claim of the lecture notes against a control."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

from peasy.commands.result import JsonDict, Result
from peasy.errors import NotFound, PeasyError, UsageError, did_you_mean
from peasy.experiments.result import EXPERIMENTS, Experiment, ExperimentResult, OnStatus, ignore_status, save_result
from peasy.experiments.statistics import pool
from peasy.experiments.stored import SeedsResult, code_hash, stored_results, versions
from peasy.parameters import check_keywords, parameter_names
from peasy.views.document import Document, Paragraph, Table, format_duration

if TYPE_CHECKING:
    import numpy as np

    from peasy.experiments.models import ModelSource


class ExperimentOptions(TypedDict, total=False):
    """Parameters of the experiments; each has its own and refuses the others."""

    causal: bool
    counts: Sequence[int]
    distances: Sequence[int]
    leak: bool
    lengths: Sequence[int]
    max_tokens: int
    model: "ModelSource"
    models: Sequence[str]
    normalize: Callable[[tuple[float, ...], str], "np.ndarray"]
    pairs: int
    probes: int
    repeats: int
    rnn_model: "ModelSource"
    scale: float | None
    search_probes: int
    sentences: "ModelSource"
    steps: int
    texts: int
    tokens: int
    width: int
    words: "ModelSource"


class ExperimentsResult(Result, repr=True):
    """List of all experiments, each with its question."""

    experiments: Sequence[Experiment] = tuple(EXPERIMENTS.values())

    def document(self) -> Document:
        """One row for each experiment: name, question, measured duration, outcome of the stored seeds."""
        stored = {
            name: (f"about {format_duration(result.seconds / len(result.seeds))}", str(result.outcome))
            for name, result in stored_results().items()
        }
        rows = tuple((e.name, e.question, *stored.get(e.name, (e.duration, ""))) for e in self.experiments)
        table = Table(("name", "question", "duration", "result"), rows)
        return Document("Experiments", (table, Paragraph("Run one: peasy experiment NAME", "note")))

    def data(self) -> JsonDict:
        """Return the experiments, each with its result over the stored seeds."""
        data, stored = super().data(), stored_results()
        for row in data["experiments"]:
            row["stored"] = stored[row["name"]].data() if row["name"] in stored else None
        return data


@overload
def experiment(name: None = None) -> ExperimentsResult: ...
@overload
def experiment(
    name: str, *, seed: int = 0, seeds: Literal[1] = 1, on_progress: OnStatus | None = None, store: bool = False,
    **options: Unpack[ExperimentOptions],
) -> ExperimentResult: ...  # fmt: skip
@overload
def experiment(
    name: str, *, seed: int = 0, seeds: int, on_progress: OnStatus | None = None, store: bool = False,
    **options: Unpack[ExperimentOptions],
) -> ExperimentResult | SeedsResult: ...  # fmt: skip
def experiment(
    name: str | None = None, *, seed: int = 0, seeds: int = 1, on_progress: OnStatus | None = None,
    store: bool = False, **options: Unpack[ExperimentOptions],
) -> ExperimentResult | ExperimentsResult | SeedsResult:  # fmt: skip
    """Run an experiment by name; without a name, list them all. `store` saves the result for `load_result`.

    >>> experiment("matrix-form", tokens=8).comparisons[0].outcome.value
    'supported'
    >>> "matrix-form" in experiment().text()
    True

    Args:
        name: Name of the experiment; without it, all are listed.
        seed: Seed of the random numbers.
        seeds: Number of seeds to run, from `seed` on; several give means with 95 % intervals and effect sizes.
        on_progress: Called with a short description of each step.
        store: Save the result for `load_result`.
        **options: Parameters of the experiment itself, such as `steps`.
    """
    if name is None:
        return ExperimentsResult()
    if name not in EXPERIMENTS:
        hint = " ".join(filter(None, (did_you_mean(name, EXPERIMENTS), "See all: peasy experiment")))
        raise NotFound(f'There is no experiment "{name}".', hint=hint)
    if seeds < 1:
        raise UsageError(
            f"seeds must be at least 1, not {seeds}.", hint="Five are the fewest that can show a difference."
        )
    run: Callable[..., ExperimentResult] = import_module(f"peasy.experiments.{name.replace('-', '_')}").run
    check_keywords(name, options, parameter_names(run))
    on_status = on_progress or ignore_status
    if seeds > 1:
        return _run_seeds(name, run, range(seed, seed + seeds), on_status, options)
    result = run(seed=seed, on_status=on_status, **options)
    if store:
        with suppress(PeasyError, OSError):  # the result is worth showing even if it cannot be stored
            save_result(result)
    return result


def _run_seeds(
    name: str, run: Callable[..., ExperimentResult], seeds: Sequence[int], on_status: OnStatus,
    options: ExperimentOptions,
) -> SeedsResult:  # fmt: skip
    """Run an experiment with each seed; the result of options other than the defaults is never current."""
    start, runs = time.perf_counter(), []
    for seed in seeds:
        on_status(f"seed {seed} ({seed - seeds[0] + 1} of {len(seeds)}) ...")
        runs.append(run(seed=seed, on_status=on_status, **options).comparisons)
    code = "other options" if options else code_hash(name)
    seconds = round(time.perf_counter() - start, 1)
    return SeedsResult(name, tuple(seeds), pool(runs), code, versions(), seconds)
