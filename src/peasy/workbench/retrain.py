"""`models retrain`: train a built-in model again from its recipe, evaluate it, and compare it with its card."""

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
"""Tolerance for figures of another machine: absolute for fractions, relative for larger numbers."""

Hear = Callable[["Event"], None]


@dataclass(frozen=True, repr=False)
class RetrainResult(Result):
    """A retrained built-in model: its new card and the card shipped with peasy."""

    name: str
    folder: Path
    card: Mapping[str, Any]
    shipped: Mapping[str, Any] | None
    same: bool
    """True if the weights are byte-identical."""

    @property
    def passed(self) -> bool:
        """True if the weights are identical, or all figures agree within the tolerance."""
        if self.same or self.shipped is None:
            return True
        expected, measured = self.shipped["figures"], self.card["figures"]
        return expected.keys() == measured.keys() and all(_near(expected[key], measured[key]) for key in expected)

    @property
    def verdict(self) -> str:
        """Summary in one sentence."""
        if self.shipped is None:
            return f"{self.name} is new: there is no card to compare it with."
        if self.same:
            return f"{self.name}: the weights are byte-identical."
        figures = "the figures agree within 2 %" if self.passed else "THE FIGURES DIFFER"
        return f"{self.name}: the weights differ (other machine, thread count or library version); {figures}."

    def document(self) -> Document:
        """Return every figure, shipped and retrained."""
        shipped_figures = self.shipped["figures"] if self.shipped else {}
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (key, f"{shipped_figures[key]:.4f}" if key in shipped_figures else "", f"{value:.4f}")
            for key, value in self.card["figures"].items()
        )
        location = Paragraph(f"16-bit weights, as shipped: {self.folder}", "note")
        return Document(
            f"{self.name}, retrained",
            (Paragraph(self.verdict), Table(("figure", "on its card", "now"), rows), location),
        )

    def data(self) -> dict[str, Any]:
        """Return both cards as plain data."""
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
    """Train a built-in model again from its recipe into `run`; `steps` shortens the training for a trial.

    The run contains the trained weights; its subfolder `ready` contains what is shipped: 16-bit weights and a card.
    """
    need("torch")
    from peasy.training.event import Started

    ready_recipe = recipe(name)
    settings = ready_recipe.settings | ({"sentence": ready_recipe.sentence} if ready_recipe.sentence else {})
    folder = None
    for event in training(
        ready_recipe.kind,
        ready_recipe.data,
        steps=steps or ready_recipe.steps,
        seed=ready_recipe.seed,
        run=run,
        settings=settings,
        device="cpu",
    ):
        if isinstance(event, Started):
            folder = event.run
        if hear is not None:
            hear(event)
    assert folder is not None
    stored, shipped = _store(load(folder, device="cpu"), folder / READY, ready_recipe), built_in().get(name)
    same = shipped is not None and _hash(stored) == _hash(shipped)
    return RetrainResult(name, stored, read_card(stored) or {}, read_card(shipped), same)


def _hash(folder: Path) -> str:
    return read_manifest(Folder(folder)).files[WEIGHTS].sha256


def _store(loaded: LoadedModel, folder: Path, made: ReadyRecipe) -> Path:
    """Save the model in 16 bits with its card; the rounded weights are the ones evaluated."""
    from peasy.checkpoint.model import save_model

    model = loaded.model.half().float()
    run_recipe = (folder.parent / RECIPE).read_bytes()  # evaluation reads settings from the training recipe
    card = json.dumps(_card(loaded, made), indent=2, ensure_ascii=False) + "\n"
    return save_model(
        folder,
        model.half(),
        loaded.tokenizer,
        target_tokenizer=loaded.target_tokenizer,
        notes={STORED: "float16"},
        extras={CARD: card.encode(), RECIPE: run_recipe},
    )


def _card(loaded: LoadedModel, made: ReadyRecipe) -> dict[str, Any]:
    import torch

    corpus = open_corpus(made.data)
    figures = evaluate(loaded, corpus).measures
    alignment_head = find_aligning_head(loaded, corpus)
    return {
        "says": made.says,
        "limits": made.limits,
        "command": made.command(),
        "data": {"name": corpus.name, "says": corpus.says, "licence": corpus.licence, "sha256": corpus.card.hash},
        "parameters": loaded.model.count_parameters(),
        "figures": {key: round(value, 6) for key, value in figures.items() if math.isfinite(value)},
        **({} if alignment_head is None else {ALIGNS: list(alignment_head)}),
        "licence": "Apache-2.0",
        "trained on": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
    }


def _near(told: float, found: float) -> bool:
    return abs(told - found) <= _NEAR * max(1.0, abs(told))
