"""`experiment`: run an experiment that tests a claim of the lecture notes against a control."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

from peasy.commands.result import Result
from peasy.errors import NotFound, PeasyError, check_keywords, did_you_mean, parameter_names
from peasy.experiments.result import EXPERIMENTS, Experiment, ExperimentResult, OnStatus, ignore_status, save_result
from peasy.views.document import Document
from peasy.views.evaluation import experiments_document

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
    seeds: int
    sentences: "ModelSource"
    steps: int
    texts: int
    tokens: int
    width: int
    words: "ModelSource"


@dataclass(frozen=True)
class ExperimentsResult(Result):
    """List of all experiments, each with its question."""

    experiments: Sequence[Experiment] = tuple(EXPERIMENTS.values())

    def document(self) -> Document:
        """One row for each experiment."""
        return experiments_document([(e.name, e.question, e.duration) for e in self.experiments])


@overload
def experiment(name: None = None) -> ExperimentsResult: ...
@overload
def experiment(
    name: str,
    *,
    seed: int = 0,
    on_progress: OnStatus | None = None,
    store: bool = False,
    **options: Unpack[ExperimentOptions],
) -> ExperimentResult: ...
def experiment(
    name: str | None = None,
    *,
    seed: int = 0,
    on_progress: OnStatus | None = None,
    store: bool = False,
    **options: Unpack[ExperimentOptions],
) -> ExperimentResult | ExperimentsResult:
    """Run an experiment by name; without a name, list them all. `store` saves the result for `load_result`.

    >>> experiment("matrix-form", tokens=8).holds
    True
    >>> "matrix-form" in experiment().text()
    True

    Args:
        name: Name of the experiment; without it, all are listed.
        seed: Seed of the random numbers.
        on_progress: Called with a short description of each step.
        store: Save the result for `load_result`.
        **options: Parameters of the experiment itself, such as `steps`.
    """
    if name is None:
        return ExperimentsResult()
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS) or "See all: peasy experiment"
        raise NotFound(f'There is no experiment "{name}".', hint=hint)
    run: Callable[..., ExperimentResult] = import_module(f"peasy.experiments.{name.replace('-', '_')}").run
    check_keywords(name, options, parameter_names(run))
    result = run(seed=seed, on_status=on_progress or ignore_status, **options)
    if store:
        with suppress(PeasyError, OSError):  # the result is worth showing even if it cannot be stored
            save_result(result)
    return result
