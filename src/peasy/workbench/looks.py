"""Activations of a data set, captured text by text and written to shards within a memory budget."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from peasy.checkpoint.memory import show_bytes
from peasy.looking.budget import read_bytes
from peasy.views.document import Document, Paragraph
from peasy.workbench.finding import Finding
from peasy.workbench.load import LoadedModel

if TYPE_CHECKING:
    from peasy.looking.shards import Kept


def keep_looks(
    loaded: LoadedModel,
    texts: Iterable[str],
    folder: str | Path,
    *,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    steps: Iterable[str] = ("weights",),
    budget: str | int = "512MB",
    storage: str = "float16",
) -> Finding:
    """Capture every text and write the activations to `folder`; `peasy.looking.shards.read_looks` reads them."""
    from peasy.looking.question import Question
    from peasy.looking.shards import stream_looks
    from peasy.workbench.passage import open_passage

    def as_tuple(indices: Iterable[int] | None) -> tuple[int, ...] | None:
        return None if indices is None else tuple(indices)

    spec = Question(tuple(steps), as_tuple(layers), as_tuple(heads))
    inputs = (open_passage(loaded, text).reading for text in texts)
    store = stream_looks(loaded.model, inputs, spec, folder, budget=read_bytes(budget), storage=storage)
    return Finding(store, lambda: kept_document(store, spec.steps, storage))


def kept_document(kept: "Kept", steps: tuple[str, ...], storage: str) -> Document:
    """Document with the size of the saved activations and the code to read them."""
    size = f"{', '.join(steps)} of {kept.texts:,} texts: {show_bytes(kept.bytes)} as {storage}"
    code = f'from peasy.looking.shards import read_looks; next(read_looks("{kept.folder}"))'
    text = f"{size}, in {kept.files:,} files in {kept.folder}."
    return Document("Saved activations", (Paragraph(text), Paragraph(code, "note")))
