"""`experiment`: what the documents claim, measured against a control."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from peasy.errors import NotFound, PeasyError, did_you_mean
from peasy.views.document import Document
from peasy.views.experiment import experiments_document
from peasy.workbench.experiments.finding import Finding, Hear, unheard
from peasy.workbench.experiments.memory import remember
from peasy.workbench.result import Result


@dataclass(frozen=True)
class Experiment:
    """A question that can be put to models: its name, which claims of the documents it is about, how long it takes."""

    name: str
    asks: str
    claims: tuple[str, ...]
    takes: str

    def run(self, seed: int = 0, hear: Hear = unheard, **how: Any) -> Finding:
        """Do it; `how` are options of this experiment alone."""
        module = import_module(f"peasy.workbench.experiments.{self.name.replace('-', '_')}")
        found: Finding = module.run(seed=seed, hear=hear, **how)
        return found


EXPERIMENTS = (
    Experiment(
        "long-or-parallel",
        "Long dependency or parallel: n-gram, RNN, CNN or Transformer?",
        ("000.1", "000.2", "000.3", "000.4"),
        "minutes",
    ),
    Experiment("look-back", "What if a token may look ahead in training?", ("000.5", "000.6"), "a minute"),
    Experiment("why-root-dk", "Why are scores divided by the root of d_k?", ("000.9",), "a minute"),
    Experiment("heads", "One wide head or several narrow ones?", ("002.6",), "minutes"),
    Experiment("it", 'Where does "it" look, and which heads carry it?', ("001.3",), "minutes"),
    Experiment(
        "order-and-size", "Do translators find words in another order and number?", ("001.1", "001.2"), "minutes"
    ),
    Experiment(
        "meaning", "Do similar words and sentences get similar vectors?", ("001.5", "001.6", "001.7"), "seconds"
    ),
    Experiment("softmax-or-sum", "Why softmax, and not division by the sum?", ("004.3", "002.1", "002.2"), "seconds"),
    Experiment("cache", "What does a cache save, and what does it cost?", ("002.9",), "seconds"),
    Experiment("projections", "What do W_Q, W_K and W_V do to words?", ("002.3", "002.4"), "seconds"),
    Experiment("first-word", "What does a mask do to the first word?", ("001.8",), "seconds"),
    Experiment("matrix-form", "Token by token or as matrices: the same numbers?", ("000.10",), "seconds"),
)
"""In the order in which they are listed."""


@dataclass(frozen=True)
class Experiments(Result):
    """All experiments there are."""

    experiments: Sequence[Experiment] = EXPERIMENTS

    def document(self) -> Document:
        """One line for each."""
        return experiments_document([(each.name, each.asks, each.takes) for each in self.experiments])

    def data(self) -> dict[str, Any]:
        """Names, questions and the claims they are about."""
        told = [{"name": e.name, "asks": e.asks, "claims": list(e.claims), "takes": e.takes} for e in self.experiments]
        return {"experiments": told}


def experiment(name: str, *, seed: int = 0, hear: Hear | None = None, keep: bool = False, **how: Any) -> Finding:
    """Run one of the experiments by name; `experiments()` lists them. `keep` makes it the one that `recall` gives.

    >>> experiment("matrix-form", tokens=8).holds
    True
    """
    named = {each.name: each for each in EXPERIMENTS}
    if name not in named:
        hint = did_you_mean(name, named) or "See all: peasy experiment"
        raise NotFound(f'There is no experiment "{name}".', hint=hint)
    found = named[name].run(seed, hear or unheard, **how)
    if keep:
        with suppress(PeasyError, OSError):  # what was found is worth showing also where nothing can be kept
            remember(found)
    return found


def experiments() -> Experiments:
    """All experiments, each with its question.

    >>> "matrix-form" in experiments().text()
    True
    """
    return Experiments()
