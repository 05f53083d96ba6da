"""Where two roads part: the first layer, head and position whose numbers differ."""

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
    """The first step of text `index` at which `road` through `other` leaves the plain road through `model`."""
    plain, changed = Watch(index), Watch(index)
    alone(model, texts, plain)
    road(other, texts, changed)
    right, found = plain.whole(), changed.whole()
    for (place, step), numbers in right.items():
        against = found.get((place, step))
        if against is None:
            continue  # that road did not pass here, as a source that was read before
        where = _first(place, step, against, numbers, tolerance)
        if where is not None:
            return where
    return None


def of_scores(found: Tensor, right: Tensor, tolerance: float) -> Where:
    """The first token whose scores differ, where no step inside does."""
    if found.shape != right.shape:
        return Where("scores", None, "", "logits", None, 0)
    far = apart(found, right).flatten(1).amax(dim=1) > tolerance
    return Where("scores", None, "", "logits", None, int(far.int().argmax()))


def of_heads(place: Place, found: Tensor, right: Tensor, tolerance: float) -> Where | None:
    """The first head and row of one attention, `[head, row, width]`, whose context differs."""
    return _first(place, "context", found, right, tolerance)


def _first(place: Place, step: str, found: Tensor, right: Tensor, tolerance: float) -> Where | None:
    if found.shape != right.shape:
        return Where(place.stack, place.layer, place.part, step, None, 0)
    far = apart(found, right).amax(dim=-1) > tolerance
    if not bool(far.any()):
        return None
    if step not in HEAD_STEPS:
        return Where(place.stack, place.layer, place.part, step, None, int(far.int().argmax()))
    position = int(far.any(dim=0).int().argmax())
    head = int(far[:, position].int().argmax())
    return Where(place.stack, place.layer, place.part, step, head, position)


def furthest(found: Sequence[tuple[Tensor, Tensor]]) -> tuple[float, int]:
    """The largest distance of several pairs (found, right), and which pair it is."""
    far = [
        float(apart(one, other).max()) if one.shape == other.shape and one.numel() else torch.inf
        for one, other in found
    ]
    worst = max(range(len(far)), key=far.__getitem__)
    return far[worst], worst
