"""A whole data set looked at: what was asked for of every text, in shards on disk, within a budget of memory."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from peasy.looking.budget import read_bytes
from peasy.workbench.load import LoadedModel


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
) -> Any:
    """Look at every text and write what was asked for to `folder`; `peasy.looking.shards.read_looks` reads it again."""
    from peasy.looking.question import Question
    from peasy.looking.shards import stream_looks
    from peasy.workbench.passage import open_passage

    def some(given: Iterable[int] | None) -> tuple[int, ...] | None:
        return None if given is None else tuple(given)

    question = Question(tuple(steps), some(layers), some(heads))
    readings = (open_passage(loaded, text).reading for text in texts)
    return stream_looks(loaded.model, readings, question, folder, budget=read_bytes(budget), storage=storage)
