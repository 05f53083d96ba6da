"""`experiment`: run an experiment that tests a claim of the lecture notes against a control."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

from peasy.commands.result import Result
from peasy.errors import NotFound, PeasyError, check_keywords, did_you_mean, parameter_names
from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status, save_result
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
class Experiment:
    """An experiment: its name, its question, the claims it tests, and how long it takes."""

    name: str
    question: str
    claims: tuple[str, ...]
    duration: str


EXPERIMENTS = (
    Experiment(
        "long-or-parallel",
        "Long dependency or parallel: n-gram, RNN, CNN or Transformer?",
        ("context-summary.1", "context-summary.2", "context-summary.3", "context-summary.4"),
        "minutes",
    ),
    Experiment(
        "causal-mask",
        "What if a token attends to later tokens in training?",
        ("context-summary.5", "context-summary.6"),
        "a minute",
    ),
    Experiment("why-root-dk", "Why are scores divided by the root of d_k?", ("context-summary.9",), "a minute"),
    Experiment("heads", "One wide head or several narrow ones?", ("transformers.6",), "minutes"),
    Experiment("pronoun", 'What does "it" attend to, and which heads matter?', ("self-attention.3",), "minutes"),
    Experiment(
        "order-and-size",
        "Do translators handle a different word order and word count?",
        ("self-attention.1", "self-attention.2"),
        "minutes",
    ),
    Experiment(
        "meaning",
        "Do similar words and sentences get similar vectors?",
        ("self-attention.5", "self-attention.6", "self-attention.7"),
        "seconds",
    ),
    Experiment(
        "softmax-or-sum",
        "Why softmax, and not division by the sum?",
        ("simple-attention.3", "transformers.1", "transformers.2"),
        "seconds",
    ),
    Experiment("cache", "What does a KV cache save, and what does it cost?", ("transformers.9",), "seconds"),
    Experiment("projections", "What do W_Q, W_K and W_V do to words?", ("transformers.3", "transformers.4"), "seconds"),
    Experiment(
        "is-attention-explanation",
        "Do attention weights explain an answer?",
        ("self-attention.3",),
        "seconds",
    ),
    Experiment("first-word", "What does a mask do to the first word?", ("self-attention.8",), "seconds"),
    Experiment("matrix-form", "Token by token or as matrices: the same numbers?", ("context-summary.10",), "seconds"),
)
"""All experiments, in display order."""


@dataclass(frozen=True)
class ExperimentsResult(Result):
    """List of all experiments, each with its question."""

    experiments: Sequence[Experiment] = EXPERIMENTS

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
    names = [entry.name for entry in EXPERIMENTS]
    if name not in names:
        hint = did_you_mean(name, names) or "See all: peasy experiment"
        raise NotFound(f'There is no experiment "{name}".', hint=hint)
    run: Callable[..., ExperimentResult] = import_module(f"peasy.experiments.{name.replace('-', '_')}").run
    check_keywords(name, options, parameter_names(run))
    result = run(seed=seed, on_status=on_progress or ignore_status, **options)
    if store:
        with suppress(PeasyError, OSError):  # the result is worth showing even if it cannot be stored
            save_result(result)
    return result
