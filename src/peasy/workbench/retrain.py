"""`models retrain`: a built-in model made again from its recipe, measured, and held beside its card."""

import json
import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.folder import Folder
from peasy.checkpoint.manifest import read_manifest
from peasy.checkpoint.resolve import built_in
from peasy.corpora import open_corpus
from peasy.models.ready import CARD, ReadyRecipe, recipe
from peasy.parts import need
from peasy.views.document import Cell, Document, Paragraph, Table
from peasy.workbench.aligner import ALIGNS, find_aligning_head
from peasy.workbench.evaluate import evaluate
from peasy.workbench.load import STORED, LoadedModel, load
from peasy.workbench.models import read_card
from peasy.workbench.result import Result
from peasy.workbench.runs import RECIPE
from peasy.workbench.train import training

if TYPE_CHECKING:
    from peasy.training.event import Event

WEIGHTS = "model.safetensors"
READY = "ready"
_NEAR = 0.02
"""Figures of another machine may differ by so much: a share by points, a loss by its own size."""

Hear = Callable[["Event"], None]


@dataclass(frozen=True, repr=False)
class RetrainResult(Result):
    """A built-in model that was made again: its new card beside the one that came with peasy."""

    name: str
    folder: Path
    card: Mapping[str, Any]
    shipped: Mapping[str, Any] | None
    same: bool
    """Whether the weights are the very same bytes."""

    @property
    def passed(self) -> bool:
        """The same weights, or figures as good as the same."""
        if self.same or self.shipped is None:
            return True
        told, found = self.shipped["figures"], self.card["figures"]
        return told.keys() == found.keys() and all(_near(told[key], found[key]) for key in told)

    @property
    def verdict(self) -> str:
        """In one sentence."""
        if self.shipped is None:
            return f"{self.name} is new: there is no card to hold it beside."
        if self.same:
            return f"{self.name}: the same weights, byte by byte."
        found = "the figures are the same within 2 %" if self.passed else "THE FIGURES DIFFER"
        return f"{self.name}: other weights (another machine, thread count or library), and {found}."

    def document(self) -> Document:
        """Every figure, then and now."""
        told = self.shipped["figures"] if self.shipped else {}
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (key, f"{told[key]:.4f}" if key in told else "", f"{value:.4f}")
            for key, value in self.card["figures"].items()
        )
        where = Paragraph(f"In 16 bits, as it is shipped: {self.folder}", "note")
        return Document(
            f"{self.name}, made again",
            (Paragraph(self.verdict), Table(("figure", "on its card", "now"), rows), where),
        )

    def data(self) -> dict[str, Any]:
        """Both cards as plain data."""
        return {
            "name": self.name,
            "folder": str(self.folder),
            "passed": self.passed,
            "same": self.same,
            "card": dict(self.card),
            "shipped": dict(self.shipped) if self.shipped else None,
        }

    def __repr__(self) -> str:
        return f"RetrainResult({self.verdict})"


def retrain(
    name: str, *, run: str | Path | None = None, steps: int | None = None, hear: Hear | None = None
) -> RetrainResult:
    """Train a built-in model again by its recipe; `run` is where, `steps` makes it a shorter one for trying out.

    The run holds the weights as they were trained, and `ready` in it what is shipped: 16 bits and a card.
    """
    need("torch")
    from peasy.training.event import Started

    made = recipe(name)
    settings = made.settings | ({"sentence": made.sentence} if made.sentence else {})
    folder = None
    for event in training(
        made.kind, made.data, steps=steps or made.steps, seed=made.seed, run=run, settings=settings, device="cpu"
    ):
        if isinstance(event, Started):
            folder = event.run
        if hear is not None:
            hear(event)
    assert folder is not None
    small, shipped = _store(load(folder, device="cpu"), folder / READY, made), built_in().get(name)
    same = shipped is not None and _hash(small) == _hash(shipped)
    return RetrainResult(name, small, read_card(small) or {}, read_card(shipped), same)


def _hash(folder: Path) -> str:
    return read_manifest(Folder(folder)).files[WEIGHTS].sha256


def _store(loaded: LoadedModel, folder: Path, made: ReadyRecipe) -> Path:
    """The model in 16 bits with its card; what is measured are the rounded weights."""
    from peasy.checkpoint.model import save_model

    model = loaded.model.half().float()
    told = (folder.parent / RECIPE).read_bytes()  # how it was trained is how it is measured
    card = json.dumps(_card(loaded, made), indent=2, ensure_ascii=False) + "\n"
    return save_model(
        folder,
        model.half(),
        loaded.tokenizer,
        target_tokenizer=loaded.target_tokenizer,
        notes={STORED: "float16"},
        extras={CARD: card.encode(), RECIPE: told},
    )


def _card(loaded: LoadedModel, made: ReadyRecipe) -> dict[str, Any]:
    import torch

    corpus = open_corpus(made.data)
    measured = evaluate(loaded, corpus).measures
    aligns = find_aligning_head(loaded, corpus)
    return {
        "says": made.says,
        "limits": made.limits,
        "command": made.command(),
        "data": {"name": corpus.name, "says": corpus.says, "licence": corpus.licence, "sha256": corpus.card.hash},
        "parameters": loaded.model.count_parameters(),
        "figures": {key: round(value, 6) for key, value in measured.items() if math.isfinite(value)},
        **({} if aligns is None else {ALIGNS: list(aligns)}),
        "licence": "Apache-2.0",
        "trained on": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
    }


def _near(told: float, found: float) -> bool:
    return abs(told - found) <= _NEAR * max(1.0, abs(told))
