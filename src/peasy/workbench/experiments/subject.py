"""Model variants for experiments: loaded by name, untrained, or with ablated heads."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from peasy.workbench.aligner import Head
from peasy.workbench.load import LoadedModel, load

Subject = str | Path | LoadedModel


def open_subject(model: Subject) -> LoadedModel:
    """Load a model by name or path; a loaded one is returned as it is."""
    return model if isinstance(model, LoadedModel) else load(model, device="cpu")


def untrained(loaded: LoadedModel, seed: int) -> LoadedModel:
    """Return the same model with newly initialized weights."""
    from peasy.models.build import build

    return replace(loaded, name=f"{loaded.name}, untrained", model=build(loaded.model.config, seed=seed), packed={})


def without(loaded: LoadedModel, heads: Iterable[Head]) -> LoadedModel:
    """Return the same model with some heads ablated."""
    from peasy.looking.change import make_change
    from peasy.looking.edit import off
    from peasy.looking.edited import Edited

    change = make_change([off(layer, head) for layer, head in heads], loaded.model)
    if change is None:
        return loaded
    return replace(loaded, model=cast(Any, Edited(loaded.model, change)), packed={})


def name_head(head: Head) -> str:
    """Format (layer, head) as `peasy look` does.

    >>> name_head((2, 1))
    '2.1'
    """
    return f"{head[0]}.{head[1]}"
