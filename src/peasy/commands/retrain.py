"""`models retrain`: train a built-in model again from its recipe, evaluate it, and compare it with its card."""

import json
import math
import platform
from collections.abc import Callable
from pathlib import Path

from peasy.checkpoint.loaded_model import STORED_NOTE
from peasy.checkpoint.paths import built_in_models
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import read_manifest
from peasy.commands.align import CARD_KEY, find_alignment_head
from peasy.commands.evaluate import evaluate
from peasy.commands.load import LoadedModel, load
from peasy.commands.models import read_card
from peasy.commands.result import JsonDict, Result
from peasy.commands.runs import RECIPE
from peasy.commands.train import train_events
from peasy.datasets import open_corpus
from peasy.models.built_in import CARD_FILE, BuiltinModelRecipe, recipe
from peasy.training.event import Event, Started
from peasy.views.document import Document, Paragraph, Table

_WEIGHTS = "model.safetensors"
_SHIPPED_FOLDER = "built-in"
"""Subfolder of the run with the files to ship."""
_TOLERANCE = 0.02
"""Tolerance for figures of another machine: absolute for fractions, relative for larger numbers."""

_OnEvent = Callable[[Event], None]


class RetrainResult(Result):
    """A retrained built-in model: its new card and the card shipped with peasy."""

    name: str
    folder: Path
    card: JsonDict
    shipped_card: JsonDict | None
    identical: bool
    """True if the weights are byte-identical."""

    @property
    def passed(self) -> bool:
        """True if the weights are identical, or all figures agree within the tolerance."""
        if self.identical or self.shipped_card is None:
            return True
        expected, measured = self.shipped_card["metrics"], self.card["metrics"]
        margins = {key: _TOLERANCE * max(1.0, abs(value)) for key, value in expected.items()}
        same = expected.keys() == measured.keys()
        return same and all(abs(expected[key] - measured[key]) <= margin for key, margin in margins.items())

    @property
    def verdict(self) -> str:
        """Summary in one sentence."""
        if self.shipped_card is None:
            return f"{self.name} is new: there is no card to compare it with."
        if self.identical:
            return f"{self.name}: the weights are byte-identical."
        figures = "the figures agree within 2 %" if self.passed else "THE FIGURES DIFFER"
        return f"{self.name}: the weights differ (other machine, thread count or library version); {figures}."

    def document(self) -> Document:
        """Return every figure, shipped and retrained."""
        shipped_figures = self.shipped_card["metrics"] if self.shipped_card else {}
        rows = tuple(
            (key, f"{shipped_figures[key]:.4f}" if key in shipped_figures else "", f"{value:.4f}")
            for key, value in self.card["metrics"].items()
        )
        table = Table(("figure", "on its card", "now"), rows)
        location = Paragraph(f"16-bit weights, as shipped: {self.folder}", "note")
        return Document(f"{self.name}, retrained", (Paragraph(self.verdict), table, location))

    def data(self) -> JsonDict:
        return super().data() | {"passed": self.passed}


def retrain(
    name: str, *, run: str | Path | None = None, steps: int | None = None, on_event: _OnEvent | None = None
) -> RetrainResult:
    """Train a built-in model again from its recipe into `run`; `steps` shortens the training for a trial.

    The run contains the trained weights; its subfolder `built-in` contains what is shipped: 16-bit weights and a card.
    """
    model_recipe = recipe(name)
    sentence = model_recipe.tracked_sentence
    settings = model_recipe.settings | ({"tracked_sentence": sentence} if sentence else {})
    folder, steps = None, steps or model_recipe.steps
    kind, data, seed = model_recipe.kind, model_recipe.data, model_recipe.seed
    for event in train_events(kind, data, steps=steps, seed=seed, run=run, settings=settings, device="cpu"):
        if isinstance(event, Started):
            folder = event.run
        if on_event is not None:
            on_event(event)
    assert folder is not None
    stored = _save_for_shipping(load(folder, device="cpu"), folder / _SHIPPED_FOLDER, model_recipe)
    shipped = built_in_models().get(name)
    identical = shipped is not None and _weights_hash(stored) == _weights_hash(shipped)
    return RetrainResult(name, stored, read_card(stored) or {}, read_card(shipped), identical)


def _weights_hash(folder: Path) -> str:
    return read_manifest(SafeFolder(folder)).files[_WEIGHTS].sha256


def _save_for_shipping(loaded: LoadedModel, folder: Path, model_recipe: BuiltinModelRecipe) -> Path:
    """Save the model in 16 bits with its card; the rounded weights are the ones evaluated."""
    from peasy.checkpoint.model import save_model

    model = loaded.model.half().float()
    run_recipe = (folder.parent / RECIPE).read_bytes()  # evaluation reads settings from the training recipe
    card = json.dumps(_make_card(loaded, model_recipe), indent=2, ensure_ascii=False) + "\n"
    files = {CARD_FILE: card.encode(), RECIPE: run_recipe}
    tokenizers = {"tokenizer": loaded.tokenizer, "target_tokenizer": loaded.target_tokenizer}
    return save_model(folder, model.half(), **tokenizers, notes={STORED_NOTE: "float16"}, extras=files)


def _make_card(loaded: LoadedModel, model_recipe: BuiltinModelRecipe) -> JsonDict:
    import torch

    corpus = open_corpus(model_recipe.data)
    figures = evaluate(loaded, corpus).measures
    alignment_head = find_alignment_head(loaded, corpus)
    data = {name: getattr(corpus, name) for name in ("name", "description", "licence")}
    return {
        "description": model_recipe.description,
        "limitations": model_recipe.limitations,
        "command": model_recipe.command(),
        "data": data | {"sha256": corpus.card.hash},
        "parameters": loaded.model.count_parameters(),
        "metrics": {key: round(value, 6) for key, value in figures.items() if math.isfinite(value)},
        **({} if alignment_head is None else {CARD_KEY: list(alignment_head)}),
        "licence": "Apache-2.0",
        "environment": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
    }
