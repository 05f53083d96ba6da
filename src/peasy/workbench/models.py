"""`models`: list built-in models, runs and the Hugging Face cache; show the architecture of one model."""

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
    """One row of the model list; `fault` is the reason why a model cannot be used."""

    name: str
    where: str
    folder: Path
    is_a: str = ""
    parameters: int = 0
    bytes: int = 0
    fault: str | None = None

    def data(self) -> dict[str, Any]:
        """Return the card as plain data."""
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
    """All models available without a download."""

    models: tuple[Card, ...]

    def document(self) -> Document:
        """Return a table with one row per model."""
        parts: list[Part] = []
        if self.models:
            rows = tuple(_row(card) for card in self.models)
            parts.append(Table(("name", "where", "is", "parameters", "weights"), rows))
        else:
            parts.append(Paragraph("No models yet. Import one: peasy import FOLDER (or a Hugging Face id)."))
        parts.append(Paragraph(f"Runs and imported models are stored in {home() / 'runs'}.", "note"))
        return Document("Models", tuple(parts))

    def data(self) -> dict[str, Any]:
        """Return the cards as plain data."""
        return {"models": [card.data() for card in self.models], "home": str(home())}

    def __repr__(self) -> str:
        return f"ModelsResult({', '.join(card.name for card in self.models)})"


@dataclass(frozen=True, repr=False)
class ModelResult(Result):
    """Architecture of one model as nested boxes; its weights are not read."""

    card: Card
    box: "Box"
    story: Mapping[str, Any] | None = None
    """Model card of a built-in model: training data and command, abilities and limits."""

    def document(self) -> Document:
        """Return the model card of a built-in model, and the architecture diagram with its weights."""
        figure = model_document(self.box, self.card.name)
        return figure if self.story is None else replace(figure, parts=(*_told(self.story), *figure.parts))

    def data(self) -> dict[str, Any]:
        """Return the card and the boxes as plain data."""
        data = self.card.data() | {"parameters": self.box.parameters, "boxes": box_data(self.box)}
        return data if self.story is None else data | {"card": dict(self.story)}

    def __repr__(self) -> str:
        return f"ModelResult({self.card.name}: {self.card.is_a})"


def models() -> ModelsResult:
    """List every local model: built-in, runs and imports, and the Hugging Face cache."""
    return ModelsResult(tuple(_cards()))


def model(name: str | Path, *, offline: bool = False, ask: Ask | None = None) -> ModelResult:
    """Describe one model from its config, without reading its weights."""
    from peasy.parts import need

    need("torch")
    resolved = resolve(name, offline=offline, ask=ask)
    card = _card(resolved.name, resolved.kind, resolved.folder)
    return ModelResult(card, _empty(resolved.folder).describe(), read_card(resolved.folder))


def read_card(folder: Path | None) -> dict[str, Any] | None:
    """Read the model card (`card.json`) of a folder; None without one."""
    from peasy.models.ready import CARD

    return Folder(folder).read_json(CARD) if folder is not None and (folder / CARD).is_file() else None


def box_data(box: "Box") -> dict[str, Any]:
    """Return a box and its inner boxes as plain data."""
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
    """Render a model card."""
    figures: tuple[tuple[Cell, ...], ...] = tuple((key, f"{value:,.4g}") for key, value in story["figures"].items())
    rows: tuple[tuple[Cell, ...], ...] = (
        ("trained on", f"{story['data']['name']}: {story['data']['says']} ({story['data']['licence']})"),
        ("made by", story["command"]),
        ("cannot", story["limits"]),
        ("licence", story["licence"]),
    )
    return Paragraph(story["says"]), Table(("", ""), rows), Table(("on the validation split", ""), figures)


def _empty(folder: Path) -> Any:
    from peasy.checkpoint.model import build_empty
    from peasy.models.config import read_config

    config_path = str(folder / CONFIG)
    if is_checkpoint(folder):
        return build_empty(read_config(Folder(folder).read_json(CONFIG), config_path), config_path)
    from peasy.checkpoint.huggingface import read_folder

    return build_empty(read_folder(folder).config, config_path)


def _cards() -> Iterator[Card]:
    for name, folder in built_in().items():
        yield _card(name, "built-in", folder)
    for name, run in runs().items():
        yield _card(name, "run", next(iter(checkpoints(run)), run))
    for name, folder in all_cached().items():
        yield _card(name, "hub cache", folder)


def _card(name: str, where: str, folder: Path) -> Card:
    """Build a card from config and tensor headers alone, so that listing many models reads no weights."""
    try:
        checked_folder = Folder(folder)
        config = checked_folder.read_json(CONFIG)
        tensors = open_tensors(checked_folder)
    except PeasyError as error:
        return Card(name, where, folder, fault=error.message)
    is_a = str(config.get("kind") or config.get("model_type") or "unknown")[:40]
    return Card(name, where, folder, is_a, sum(tensors.info(tensor).count for tensor in tensors), tensors.bytes)


def _row(card: Card) -> tuple[Cell, ...]:
    if card.fault:
        return card.name, card.where, "cannot be used: " + card.fault, "", ""
    return card.name, card.where, card.is_a, f"{card.parameters:,}", show_bytes(card.bytes)
