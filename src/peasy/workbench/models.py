"""`models`: what is here (built-in, runs, the hub's cache), and what one of them is made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.folder import Folder
from peasy.checkpoint.home import checkpoints, home, runs
from peasy.checkpoint.hub import Ask, all_cached
from peasy.checkpoint.memory import show_bytes
from peasy.checkpoint.resolve import built_in, resolve
from peasy.checkpoint.store import CONFIG, is_checkpoint
from peasy.checkpoint.tensors import open_tensors
from peasy.errors import PeasyError
from peasy.views.document import Cell, Document, Paragraph, Part, Table
from peasy.views.model import model_document
from peasy.workbench.result import Result

if TYPE_CHECKING:
    from peasy.models.describe import Box


@dataclass(frozen=True)
class Card:
    """One model as the list shows it; `fault` says why it cannot be used, where it cannot."""

    name: str
    where: str
    folder: Path
    is_a: str = ""
    parameters: int = 0
    bytes: int = 0
    fault: str | None = None

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "name": self.name,
            "where": self.where,
            "folder": str(self.folder),
            "is": self.is_a,
            "parameters": self.parameters,
            "bytes": self.bytes,
            "fault": self.fault,
        }


@dataclass(frozen=True, repr=False)
class ModelsResult(Result):
    """All models that can be named without a download."""

    models: tuple[Card, ...]

    def document(self) -> Document:
        """One row for each model."""
        parts: list[Part] = []
        if self.models:
            rows = tuple(_row(card) for card in self.models)
            parts.append(Table(("name", "where", "is", "parameters", "weights"), rows))
        else:
            parts.append(Paragraph("No models yet. Bring one in: peasy import FOLDER, or a Hugging Face id."))
        parts.append(Paragraph(f"Runs and imported models live in {home() / 'runs'}.", "note"))
        return Document("Models", tuple(parts))

    def data(self) -> dict[str, Any]:
        """The cards as plain data."""
        return {"models": [card.data() for card in self.models], "home": str(home())}

    def __repr__(self) -> str:
        return f"ModelsResult({', '.join(card.name for card in self.models)})"


@dataclass(frozen=True, repr=False)
class ModelResult(Result):
    """What one model is made of, box by box; its weights were not read."""

    card: Card
    box: "Box"
    story: Mapping[str, Any] | None = None
    """Of a built-in model: what it was trained on and how, what it can do and what it cannot."""

    def document(self) -> Document:
        """What a built-in model says of itself, and the boxes of the model with their weights."""
        figure = model_document(self.box, self.card.name)
        return figure if self.story is None else replace(figure, parts=(*_told(self.story), *figure.parts))

    def data(self) -> dict[str, Any]:
        """The card and the boxes as plain data."""
        plain = self.card.data() | {"parameters": self.box.parameters, "boxes": box_data(self.box)}
        return plain if self.story is None else plain | {"card": dict(self.story)}

    def __repr__(self) -> str:
        return f"ModelResult({self.card.name}: {self.card.is_a})"


def models() -> ModelsResult:
    """Every model that is here: built-in, runs and imported ones, and what the hub's cache holds."""
    return ModelsResult(tuple(_cards()))


def model(name: str | Path, *, offline: bool = False, ask: Ask | None = None) -> ModelResult:
    """One model, drawn from its settings without reading its weights."""
    from peasy.parts import need

    need("torch")
    found = resolve(name, offline=offline, ask=ask)
    card = _card(found.name, found.kind, found.folder)
    return ModelResult(card, _empty(found.folder).describe(), read_card(found.folder))


def read_card(folder: Path | None) -> dict[str, Any] | None:
    """What a model's folder says of it in words and figures, where it does."""
    from peasy.models.ready import CARD

    return Folder(folder).read_json(CARD) if folder is not None and (folder / CARD).is_file() else None


def box_data(box: "Box") -> dict[str, Any]:
    """A box and those inside it as plain data."""
    return {
        "name": box.name,
        "says": box.says,
        "times": box.times,
        "parameters": box.parameters,
        "bytes": box.bytes,
        "weights": {name: list(shape) for name, shape in box.weights},
        "boxes": [box_data(inner) for inner in box.boxes],
    }


def _told(story: Mapping[str, Any]) -> tuple[Part, ...]:
    """A card as a document shows it."""
    figures: tuple[tuple[Cell, ...], ...] = tuple((key, f"{value:,.4g}") for key, value in story["figures"].items())
    rows: tuple[tuple[Cell, ...], ...] = (
        ("trained on", f"{story['data']['name']}: {story['data']['says']} ({story['data']['licence']})"),
        ("made by", story["command"]),
        ("cannot", story["limits"]),
        ("licence", story["licence"]),
    )
    return Paragraph(story["says"]), Table(("", ""), rows), Table(("on what was held out", ""), figures)


def _empty(folder: Path) -> Any:
    from peasy.checkpoint.model import build_empty
    from peasy.models.config import read_config

    where = str(folder / CONFIG)
    if is_checkpoint(folder):
        return build_empty(read_config(Folder(folder).read_json(CONFIG), where), where)
    from peasy.checkpoint.huggingface import read_folder

    return build_empty(read_folder(folder).config, where)


def _cards() -> Iterator[Card]:
    for name, folder in built_in().items():
        yield _card(name, "built-in", folder)
    for name, run in runs().items():
        yield _card(name, "run", next(iter(checkpoints(run)), run))
    for name, folder in all_cached().items():
        yield _card(name, "hub cache", folder)


def _card(name: str, where: str, folder: Path) -> Card:
    """From settings and headers alone: listing a hundred models reads no weights."""
    try:
        place = Folder(folder)
        config = place.read_json(CONFIG)
        tensors = open_tensors(place)
    except PeasyError as error:
        return Card(name, where, folder, fault=error.message)
    is_a = str(config.get("kind") or config.get("model_type") or "unknown")[:40]
    return Card(name, where, folder, is_a, sum(tensors.info(each).count for each in tensors), tensors.bytes)


def _row(card: Card) -> tuple[Cell, ...]:
    if card.fault:
        return card.name, card.where, "cannot be used: " + card.fault, "", ""
    return card.name, card.where, card.is_a, f"{card.parameters:,}", show_bytes(card.bytes)
