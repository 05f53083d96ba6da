"""`import`: convert a Hugging Face model into a peasy checkpoint, under a name."""

import re
from pathlib import Path

from peasy.atomic import refuse_existing
from peasy.checkpoint.hub import Confirm, is_hub_id
from peasy.checkpoint.loaded_model import open_model
from peasy.checkpoint.paths import resolve_model, run_path
from peasy.checkpoint.ram import format_bytes
from peasy.commands.load import LoadedModel
from peasy.commands.result import JsonDict, Result
from peasy.errors import UsageError
from peasy.views.document import Document, Paragraph, Table


class ImportResult(Result, repr=True):
    """Result of `import`: the loaded `model` and the `folder` of its new checkpoint."""

    name: str
    source: str
    folder: Path
    model: LoadedModel

    def document(self) -> Document:
        """Name, source, size and folder; weights and fields that were not imported are listed."""
        facts = self.data()
        shown = facts | {
            "family": facts["family"] or "peasy",
            "parameters": f"{facts['parameters']:,}",
            "weights": format_bytes(facts["bytes"]),
            "tokenizer": f"{facts['vocab_size']:,} ids" if facts["vocab_size"] else "none",
            "from": self.source,
        }
        names = ("name", "from", "family", "kind", "parameters", "weights", "tokenizer", "folder")
        table = Table(("property", "value"), tuple((name, shown[name]) for name in names))
        note = Paragraph(f"Not imported: {', '.join(facts['unused'])}.", "note")
        return Document(f"Imported {self.name}", (table, note) if facts["unused"] else (table,))

    def data(self) -> JsonDict:
        """Name, source, folder and size as plain data."""
        facts = {key: value for key, value in self.model.data().items() if key != "config"}
        origin = {"name": self.name, "source": self.source, "folder": str(self.folder), "family": self.model.family}
        fields = (f"config.json: {name}" for name in self.model.unused_fields)
        return facts | origin | {"unused": [*self.model.unused_weights, *fields]}


def import_model(
    source: str | Path,
    *,
    name: str | None = None,
    revision: str | None = None,
    as_: str | None = None,
    ignore_extra: bool = False,
    offline: bool = False,
    confirm: Confirm | None = None,
) -> ImportResult:
    """Import a Hugging Face folder, a hub id or a peasy checkpoint, under a name.

    Args:
        source: Hugging Face folder, hub id, or peasy checkpoint.
        name: Name of the imported model; default: the name of the source.
        revision: Branch, tag or commit of a hub id; the same as ID@REVISION.
        as_: Model family, such as bert, of a folder whose config.json has no model_type.
        ignore_extra: Load a model without the heads and fields that peasy does not know, and list them.

    >>> import_model("no/such-model", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    from peasy.checkpoint.model import save_model

    if name is not None:
        refuse_existing(run_path(name))
    if revision is not None and (Path(source).exists() or not is_hub_id(f"{source}@{revision}")):
        raise UsageError(f"{source} is not a hub id without a revision.", hint="Write owner/model --revision v1.")
    source = source if revision is None else f"{source}@{revision}"
    resolved = resolve_model(source, offline=offline, confirm=confirm)
    origin = resolved.folder.resolve().name if resolved.kind == "path" else resolved.name  # no local paths in a file
    name = name or _run_name_from(origin)
    folder = run_path(name)
    refuse_existing(folder)
    loaded = LoadedModel(**vars(open_model(resolved, family=as_, ignore_extra=ignore_extra)))
    notes = {"source": origin} | ({"family": loaded.family} if loaded.family else {})
    save_model(folder, loaded.model, loaded.tokenizer, target_tokenizer=loaded.target_tokenizer, notes=notes)
    return ImportResult(name, resolved.name, folder, loaded)


def _run_name_from(name: str) -> str:
    """Make a valid run name from a hub id or a folder name.

    >>> _run_name_from("sentence-transformers/all-MiniLM-L6-v2")
    'all-MiniLM-L6-v2'
    """
    return re.sub(r"[^\w.-]+", "-", name.rsplit("/", 1)[-1]).strip("-._") or "model"
