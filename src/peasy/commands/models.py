"""`models`: list built-in models, runs and the Hugging Face cache; show the architecture of one, or delete one."""

from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from peasy.checkpoint.hub import Confirm, list_cached
from peasy.checkpoint.paths import built_in_models, data_dir, find_runs, list_checkpoints, resolve_model
from peasy.checkpoint.ram import format_bytes
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import CONFIG_FILE, is_checkpoint
from peasy.checkpoint.tensors import open_tensors
from peasy.commands.result import JsonDict, Result, plain_data
from peasy.commands.runs import RECIPE, RemoveResult, remove_folder, remove_run
from peasy.errors import NotFound, PeasyError, UsageError, did_you_mean
from peasy.models.built_in import CARD_FILE
from peasy.models.config import read_config
from peasy.parameters import Record
from peasy.views.document import Document, DocumentPart, Paragraph, Table
from peasy.views.model import model_document

if TYPE_CHECKING:
    from peasy.models.describe import Box


class ModelEntry(Record):
    """One row of the model list; `error` is the reason why a model cannot be used.

    `capabilities`: what a model of this type can do, its main use first.
    """

    name: str
    source: str
    folder: Path
    model_type: str = ""
    parameters: int = 0
    bytes: int = 0
    error: str | None = None
    capabilities: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        if not self.error:
            kind = _KIND_OF_FAMILY.get(self.model_type, self.model_type)
            object.__setattr__(self, "capabilities", _CAPABILITIES.get(kind, _CAPABILITIES["decoder"]))


_CAPABILITIES = {
    "decoder": ("generate", "look", "words"),
    "encoder": ("embed", "words", "look"),
    "encoder-decoder": ("translate", "look"),
    "recurrent-translator": ("translate", "look"),
    "recurrent": ("generate", "words"),
    "convolution": ("generate", "words"),
    "ngram": ("generate",),
    "words": ("words",),
}
_FAMILIES_BY_KIND = {
    "encoder": (
        "bert", "roberta", "xlm-roberta", "camembert", "roberta-prelayernorm", "distilbert", "mpnet", "electra",
        "modernbert", "albert", "t5-encoder", "mt5-encoder",
    ),
    "encoder-decoder": ("marian", "pegasus", "bart", "mbart", "m2m_100", "t5", "mt5"),
}  # fmt: skip
"""Hugging Face families that are not decoders; a table, because the families themselves import torch."""
_KIND_OF_FAMILY = {family: kind for kind, families in _FAMILIES_BY_KIND.items() for family in families}
"""Kinds of Hugging Face model types that are no decoders."""


class ModelsResult(Result):
    """All models available without a download."""

    models: tuple[ModelEntry, ...]

    def document(self) -> Document:
        """Return a table with one row per model."""
        rows = []
        for entry in self.models:
            row = (entry.model_type, f"{entry.parameters:,}", format_bytes(entry.bytes))
            row = (f"cannot be used: {entry.error}", "", "") if entry.error else row
            rows.append((entry.name, entry.source, *row))
        table = Table(("name", "source", "type", "parameters", "weights"), tuple(rows))
        empty = Paragraph("No models yet. Import one: peasy import FOLDER (or a Hugging Face id).")
        note = Paragraph(f"Runs and imported models are stored in {data_dir() / 'runs'}.", "note")
        return Document("Models", (table if self.models else empty, note))

    def data(self) -> JsonDict:
        return super().data() | {"home": str(data_dir())}

    def __repr__(self) -> str:
        return f"ModelsResult({', '.join(entry.name for entry in self.models)})"


class ModelResult(Result):
    """Architecture of one model as nested boxes; its weights are not read."""

    entry: ModelEntry
    box: "Box"
    card: JsonDict | None = None
    """Model card of a built-in model: training data and command, abilities and limits."""

    def document(self) -> Document:
        """Return the model card of a built-in model, and the architecture diagram with its weights."""
        figure = model_document(self.box, self.entry.name)
        return figure if self.card is None else replace(figure, parts=(*_card_parts(self.card), *figure.parts))

    def data(self) -> JsonDict:
        """Return the row, the boxes and the model card as plain data."""
        data: JsonDict = plain_data(self.entry)
        data |= {"parameters": self.box.parameters, "boxes": _box_data(self.box)}
        return data if self.card is None else data | {"card": self.card}

    def __repr__(self) -> str:
        return f"ModelResult({self.entry.name}: {self.entry.model_type})"


def models() -> ModelsResult:
    """List every local model: built-in, runs and imports, and the Hugging Face cache."""
    folders = [(name, "built-in", folder) for name, folder in built_in_models().items()]
    for name, run in find_runs().items():
        folder = next(iter(list_checkpoints(run)), run)
        folders.append((name, _source_of(run), folder))
    folders += [(name, "hub cache", folder) for name, folder in list_cached().items()]
    return ModelsResult(tuple(_make_entry(*folder) for folder in folders))


def model(name: str | Path, *, offline: bool = False, confirm: Confirm | None = None) -> ModelResult:
    """Describe one model from its config, without reading its weights."""
    from peasy.checkpoint.huggingface import read_folder
    from peasy.models.build import build_on_meta

    resolved = resolve_model(name, offline=offline, confirm=confirm)
    run = find_runs().get(resolved.name.partition("@")[0]) if resolved.kind == "run" else None
    entry = _make_entry(resolved.name, _source_of(run) if run else resolved.kind, resolved.folder)
    path, is_ours = str(resolved.folder / CONFIG_FILE), is_checkpoint(resolved.folder)
    data = SafeFolder(resolved.folder).read_json(CONFIG_FILE) if is_ours else {}
    config = read_config(data, path) if is_ours else read_folder(resolved.folder).config
    return ModelResult(entry, build_on_meta(config, path).describe(), read_card(resolved.folder))


def _source_of(run: Path) -> str:
    return "imported" if (run / CONFIG_FILE).is_file() else "run"


def remove_model(name: str, *, yes: bool = False, confirm: Confirm | None = None) -> RemoveResult:
    """Delete an imported model or a run by name, permanently; asks first. Built-in models cannot be deleted."""
    if name not in (folders := find_runs()):
        if name in built_in_models():
            raise UsageError(f"{name} is a built-in model and cannot be deleted.", hint="It is a part of peasy.")
        if name in list_cached():
            hint = "The cache belongs to Hugging Face: hf cache delete"
            raise UsageError(f"{name} is in the Hugging Face cache, not among the models of peasy.", hint=hint)
        suggestion = did_you_mean(name, folders)
        raise NotFound(f'No model "{name}".', hint=f"{suggestion + ' ' if suggestion else ''}See all: peasy models")
    if (folders[name] / RECIPE).is_file():
        return remove_run(name, yes=yes, confirm=confirm)
    return remove_folder(name, folders[name], f"Delete the model {name} ({folders[name]})?", yes, confirm)


def read_card(folder: Path | None) -> JsonDict | None:
    """Read the model card (`card.json`) of a folder; None without one."""
    return SafeFolder(folder).read_json(CARD_FILE) if folder is not None and (folder / CARD_FILE).is_file() else None


def _box_data(box: "Box") -> JsonDict:
    """Return a box and its inner boxes as plain data."""
    weights = {name: list(shape) for name, shape in box.weights}
    return vars(box) | {"weights": weights, "boxes": [_box_data(inner) for inner in box.boxes]}


def _card_parts(card: JsonDict) -> tuple[DocumentPart, ...]:
    figures = tuple((key, f"{value:,.4g}") for key, value in card["metrics"].items())
    rows = (
        ("trained on", f"{card['data']['name']}: {card['data']['description']} ({card['data']['licence']})"),
        ("made by", card["command"]),
        ("limits", card["limitations"]),
        ("licence", card["licence"]),
    )
    return Paragraph(card["description"]), Table(("", ""), rows), Table(("on the validation split", ""), figures)


def _make_entry(name: str, source: str, folder: Path) -> ModelEntry:
    try:
        return _read_entry(name, source, folder, folder.stat().st_mtime_ns, (folder / CONFIG_FILE).stat().st_mtime_ns)
    except OSError:  # no config
        return _read_entry.__wrapped__(name, source, folder)


@lru_cache(maxsize=1024)
def _read_entry(name: str, source: str, folder: Path, *modified: int) -> ModelEntry:
    """Build a row from config and tensor headers alone, once while the folder is not `modified`."""
    try:
        checked_folder = SafeFolder(folder)
        config = checked_folder.read_json(CONFIG_FILE)
        tensors = open_tensors(checked_folder)
    except PeasyError as error:
        return ModelEntry(name, source, folder, error=error.message)
    model_type = str(config.get("kind") or config.get("model_type") or "unknown")[:40]
    model_type += "-encoder" if "EncoderModel" in str(config.get("architectures")) else ""
    parameters = sum(tensors.info(tensor).numel for tensor in tensors)
    return ModelEntry(name, source, folder, model_type, parameters, tensors.nbytes)
