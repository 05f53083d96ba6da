"""`import`: a model from elsewhere becomes a checkpoint of peasy, under a name."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peasy.checkpoint.home import place_for
from peasy.checkpoint.hub import Ask
from peasy.checkpoint.memory import show_bytes
from peasy.checkpoint.resolve import resolve
from peasy.commit import refuse_existing
from peasy.parts import need
from peasy.views.document import Document, Paragraph, Table
from peasy.workbench.load import LoadedModel, open_found
from peasy.workbench.result import Result


@dataclass(frozen=True, repr=False)
class ImportResult(Result):
    """What came in: `model` is ready to be asked, `folder` is where it lies now."""

    name: str
    source: str
    folder: Path
    model: LoadedModel

    def document(self) -> Document:
        """Name, place and size; weights that had no use here are named."""
        facts = self.data()
        rows = (
            ("name", self.name),
            ("from", self.source),
            ("family", facts["family"] or "peasy"),
            ("kind", facts["kind"]),
            ("parameters", f"{facts['parameters']:,}"),
            ("weights", show_bytes(facts["bytes"])),
            ("tokenizer", f"{facts['vocabulary']:,} ids" if facts["vocabulary"] else "none"),
            ("folder", str(self.folder)),
        )
        left = [Paragraph(f"Not taken over: {', '.join(self.model.unused)}.", "note")] if self.model.unused else []
        return Document(f"Imported {self.name}", (Table(("what", "is"), rows), *left))

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        facts = self.model.data()
        return {
            "name": self.name,
            "source": self.source,
            "folder": str(self.folder),
            "family": self.model.family,
            "kind": facts["kind"],
            "parameters": facts["parameters"],
            "bytes": facts["bytes"],
            "vocabulary": facts["vocabulary"],
            "unused": list(self.model.unused),
        }

    def __repr__(self) -> str:
        return f"ImportResult({self.name} from {self.source})"


def import_model(
    source: str | Path, *, name: str | None = None, offline: bool = False, ask: Ask | None = None
) -> ImportResult:
    """Take in a Hugging Face folder, a hub id or a checkpoint of peasy, under `name` (else the source's own).

    >>> import_model("no/such-model", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    need("torch")
    from peasy.checkpoint.model import save_model

    if name is not None:
        refuse_existing(place_for(name))
    found = resolve(source, offline=offline, ask=ask)
    name = name or plain_name(found.name if found.kind != "path" else found.folder.resolve().name)
    folder = place_for(name)
    refuse_existing(folder)
    loaded = open_found(found)
    origin = found.folder.resolve().name if found.kind == "path" else found.name  # no paths of this machine in a file
    notes = {"source": origin} | ({"family": loaded.family} if loaded.family else {})
    save_model(folder, loaded.model, loaded.tokenizer, target_tokenizer=loaded.target_tokenizer, notes=notes)
    return ImportResult(name, found.name, folder, loaded)


def plain_name(name: str) -> str:
    """A name that a run can have, from a hub id or a folder.

    >>> plain_name("sentence-transformers/all-MiniLM-L6-v2")
    'all-MiniLM-L6-v2'
    """
    return re.sub(r"[^\w.-]+", "-", name.rsplit("/", 1)[-1]).strip("-._") or "model"
