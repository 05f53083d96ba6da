"""A whole data set looked at: what was asked for of every text, in shards on disk, within a budget of memory."""

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
    """Look at every text and write what was asked for to `folder`; `peasy.looking.shards.read_looks` reads it again."""
    from peasy.looking.question import Question
    from peasy.looking.shards import stream_looks
    from peasy.workbench.passage import open_passage

    def some(given: Iterable[int] | None) -> tuple[int, ...] | None:
        return None if given is None else tuple(given)

    question = Question(tuple(steps), some(layers), some(heads))
    readings = (open_passage(loaded, text).reading for text in texts)
    kept = stream_looks(loaded.model, readings, question, folder, budget=read_bytes(budget), storage=storage)
    return Finding(kept, lambda: kept_document(kept, question.steps, storage))


def kept_document(kept: "Kept", steps: tuple[str, ...], storage: str) -> Document:
    """What was written, and how it is read again."""
    what = f"{', '.join(steps)} of {kept.texts:,} texts: {show_bytes(kept.bytes)} as {storage}"
    read = f'from peasy.looking.shards import read_looks; next(read_looks("{kept.folder}"))'
    return Document("Kept", (Paragraph(f"{what}, in {kept.files:,} files in {kept.folder}."), Paragraph(read, "note")))
