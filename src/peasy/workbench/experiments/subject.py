"""Whom an experiment asks: a built-in model by its name or any other, the same without some heads, or untrained."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from peasy.workbench.aligner import Head
from peasy.workbench.load import LoadedModel, load

Subject = str | Path | LoadedModel


def open_subject(model: Subject) -> LoadedModel:
    """The model itself; what is loaded already stays as it is."""
    return model if isinstance(model, LoadedModel) else load(model, device="cpu")


def untrained(loaded: LoadedModel, seed: int) -> LoadedModel:
    """The same model with the numbers that training begins with."""
    from peasy.models.build import build

    return replace(loaded, name=f"{loaded.name}, untrained", model=build(loaded.model.config, seed=seed), packed={})


def without(loaded: LoadedModel, heads: Iterable[Head]) -> LoadedModel:
    """The same model with some heads switched off."""
    from peasy.looking.change import make_change
    from peasy.looking.edit import off
    from peasy.looking.edited import Edited

    change = make_change([off(layer, head) for layer, head in heads], loaded.model)
    if change is None:
        return loaded
    return replace(loaded, model=cast(Any, Edited(loaded.model, change)), packed={})


def name_head(head: Head) -> str:
    """Layer and head as `peasy look` writes them.

    >>> name_head((2, 1))
    '2.1'
    """
    return f"{head[0]}.{head[1]}"
