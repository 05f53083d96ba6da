"""`compare`: several kinds of model on the same data, with the same budget and seed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.home import place_for, runs
from peasy.corpora import open_corpus
from peasy.errors import UsageError
from peasy.views.comparison import ComparisonFacts, Contender, comparison_document
from peasy.views.document import Document
from peasy.workbench.evaluate import EvaluateResult, evaluate
from peasy.workbench.load import load
from peasy.workbench.result import Result
from peasy.workbench.runs import Run, open_run
from peasy.workbench.train import Data, training

if TYPE_CHECKING:
    from peasy.training.event import Event

Hear = Callable[[str, "Event"], None]
"""Told the kind that is being trained, and what happens to it."""

_LESS_IS_BETTER = ("bits per byte", "loss")
_TOLD = ("loss", "bits per byte", "accuracy", "endings", "BLEU", "exact match", "partner found", "label found")


@dataclass(frozen=True, repr=False)
class CompareResult(Result):
    """Who did best. `runs` are the trained models, by kind."""

    facts: ComparisonFacts
    folders: Mapping[str, Path]

    def document(self) -> Document:
        """The table and the curves."""
        return comparison_document(self.facts)

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        found = [
            {
                "kind": each.kind,
                "run": each.run,
                "parameters": each.parameters,
                "tokens": each.tokens,
                "seconds": each.seconds,
                "measures": {name: value for name, value, _ in each.measures},
                "curve": [list(point) for point in each.curve],
            }
            for each in self.facts.contenders
        ]
        facts = self.facts
        return {"data": facts.data, "budget": facts.budget, "seed": facts.seed, "measure": facts.measure,
                "contenders": found, "notes": list(facts.notes)}  # fmt: skip

    def __repr__(self) -> str:
        return f"CompareResult({', '.join(each.kind for each in self.facts.contenders)} on {self.facts.data})"


def compare(
    kinds: Sequence[str],
    data: Data,
    *,
    preset: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    device: str = "auto",
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    limit: int | None = 500,
    hear: Hear | None = None,
) -> CompareResult:
    """Train several kinds on the same data, with the same budget and seed, and measure them alike.

    Each becomes a run `NAME-KIND` that can be loaded and looked at. An n-gram model reads the data once, whatever
    the budget: it has nothing to learn from reading it again. `limit` is how many endings or pairs are asked for.

    >>> compare(["gpt"], "copy")
    Traceback (most recent call last):
    peasy.errors.UsageError: One kind alone has nothing to be compared with.
    """
    from peasy.training.name import new_name

    if len(set(kinds)) < 2:
        raise UsageError("One kind alone has nothing to be compared with.", hint="For example: gpt rnn cnn ngram")
    if len(set(kinds)) < len(kinds):
        raise UsageError(f"A kind is named twice: {' '.join(kinds)}.")
    if minutes is None and steps is None:
        minutes = 1.0
    corpus = open_corpus(data, **dict(settings or {}).get("corpus", {}))
    name = name or new_name({run.rpartition("-")[0] for run in runs()})
    found: list[Contender] = []
    folders: dict[str, Path] = {}
    for kind in kinds:
        folder = place_for(f"{name}-{kind}")
        counts = kind == "ngram"
        for event in training(
            kind, data, preset=preset, minutes=None if counts else minutes, steps=None if counts else steps,
            seed=seed, device=device, run=folder, settings=settings,
        ):  # fmt: skip
            if hear is not None:
                hear(kind, event)
        folders[kind] = folder
        loaded = load(folder, device=device)
        measured, size = evaluate(loaded, corpus, limit=limit), loaded.model.count_parameters()
        found.append(_contender(kind, open_run(folder), measured, size))
    measure = _common([each.measures for each in found])
    ranked = sorted(found, key=lambda each: _rank(each, measure))
    notes = ["Bits per byte can be compared whatever the tokenizer; losses for each token only where it is the same."]
    if "ngram" in kinds:
        notes.append("The n-gram model read the data once.")
    budget = f"{minutes:g} minutes each" if minutes is not None else f"{steps:,} steps each"
    facts = ComparisonFacts(corpus.name, budget, seed, measure, tuple(ranked), tuple(notes))
    return CompareResult(facts, folders)


def _contender(kind: str, run: Run, measured: EvaluateResult, size: int) -> Contender:
    facts = run.facts()
    shares = {each.name: each.share for each in measured.facts.measures}
    told = tuple((name, measured[name], shares[name]) for name in _TOLD if name in shares)
    lines = [line for line in run.metrics() if line["event"] == "validated"]
    scale = _bytes_for(measured)
    curve = tuple((line["elapsed"], line["loss"] * scale) for line in lines)
    return Contender(kind, run.name, size, facts.tokens, facts.elapsed, told, curve)


def _bytes_for(measured: EvaluateResult) -> float:
    """What turns nats for each token into bits for each byte, for this tokenizer on these data."""
    measures = measured.measures
    if "bits per byte" not in measures or not measures.get("loss"):
        return 1.0
    return measures["bits per byte"] / measures["loss"]


def _common(all_measures: Sequence[tuple[tuple[str, float, bool], ...]]) -> str:
    """The measure that all have: bits per byte before loss, and loss before others."""
    shared = set.intersection(*({name for name, _, _ in measures} for measures in all_measures))
    return next((name for name in ("bits per byte", "exact match", *_TOLD) if name in shared), "")


def _rank(each: Contender, measure: str) -> float:
    value = next((value for name, value, _ in each.measures if name == measure), math.inf)
    return value if measure in _LESS_IS_BETTER else -value
