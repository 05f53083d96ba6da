"""Divergence of two execution paths: the first layer, head and position whose activations differ."""

from collections.abc import Sequence

import torch
from torch import Tensor

from peasy.models.protocol import Model
from peasy.nn.place import Place
from peasy.nn.tap import HEAD_STEPS
from peasy.proof.road import Road, Text, Watch, alone
from peasy.proof.tolerance import apart
from peasy.proof.verdict import Where


def part_ways(
    model: Model, other: Model, road: Road, texts: Sequence[Text], index: int, tolerance: float
) -> Where | None:
    """Return the first step of sequence `index` at which `road` through `other` diverges from the reference."""
    reference, recorder = Watch(index), Watch(index)
    alone(model, texts, reference)
    road(other, texts, recorder)
    expected, actual = reference.whole(), recorder.whole()
    for (path, step), expected_values in expected.items():
        actual_values = actual.get((path, step))
        if actual_values is None:
            continue  # not computed on this path, e.g. a source that was encoded before
        where = _first(path, step, actual_values, expected_values, tolerance)
        if where is not None:
            return where
    return None


def of_scores(found: Tensor, right: Tensor, tolerance: float) -> Where:
    """Return the first token whose logits differ, if no inner step does."""
    if found.shape != right.shape:
        return Where("scores", None, "", "logits", None, 0)
    differs = apart(found, right).flatten(1).amax(dim=1) > tolerance
    return Where("scores", None, "", "logits", None, int(differs.int().argmax()))


def of_heads(place: Place, found: Tensor, right: Tensor, tolerance: float) -> Where | None:
    """Return the first head and position of one attention context, `[head, time, d_head]`, that differs."""
    return _first(place, "context", found, right, tolerance)


def _first(place: Place, step: str, found: Tensor, right: Tensor, tolerance: float) -> Where | None:
    if found.shape != right.shape:
        return Where(place.stack, place.layer, place.part, step, None, 0)
    differs = apart(found, right).amax(dim=-1) > tolerance
    if not bool(differs.any()):
        return None
    if step not in HEAD_STEPS:
        return Where(place.stack, place.layer, place.part, step, None, int(differs.int().argmax()))
    position = int(differs.any(dim=0).int().argmax())
    head = int(differs[:, position].int().argmax())
    return Where(place.stack, place.layer, place.part, step, head, position)


def furthest(found: Sequence[tuple[Tensor, Tensor]]) -> tuple[float, int]:
    """Return the largest error of several (actual, expected) pairs, and the index of that pair."""
    errors = [
        float(apart(actual, expected).max()) if actual.shape == expected.shape and actual.numel() else torch.inf
        for actual, expected in found
    ]
    worst = max(range(len(errors)), key=errors.__getitem__)
    return errors[worst], worst
