"""Model variants for experiments: loaded by name, untrained, or with ablated heads."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from peasy.commands.alignment_head import LayerHead
from peasy.commands.load import LoadedModel, load

ModelSource = str | Path | LoadedModel


def open_model(model: ModelSource) -> LoadedModel:
    """Load a model by name or path; a loaded one is returned as it is."""
    return model if isinstance(model, LoadedModel) else load(model, device="cpu")


def untrained(loaded: LoadedModel, seed: int) -> LoadedModel:
    """Return the same model with newly initialized weights."""
    from peasy.models.build import build

    return replace(
        loaded, name=f"{loaded.name}, untrained", model=build(loaded.model.config, seed=seed), packed_models={}
    )


def ablate_heads(loaded: LoadedModel, heads: Iterable[LayerHead]) -> LoadedModel:
    """Return the same model with some heads ablated."""
    from peasy.inspection.apply_interventions import IntervenedModel, make_intervention
    from peasy.inspection.interventions import off

    change = make_intervention([off(layer, head) for layer, head in heads], loaded.model)
    if change is None:
        return loaded
    return replace(loaded, model=cast(Any, IntervenedModel(loaded.model, change)), packed_models={})


def format_head(head: LayerHead) -> str:
    """Format (layer, head) as `peasy look` does.

    >>> format_head((2, 1))
    '2.1'
    """
    return f"{head[0]}.{head[1]}"
