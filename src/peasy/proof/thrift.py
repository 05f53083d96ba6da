"""Packed close to full: how far the scores of thrifty weights diverge; and whether company changes any bit."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from peasy.errors import PeasyError
from peasy.generation.packed import pack, packing_of
from peasy.models.protocol import Model
from peasy.nn.head import Head
from peasy.proof.parting import of_scores, part_ways
from peasy.proof.road import Outcome, Text, alone, source_of
from peasy.proof.tolerance import INT8, apart
from peasy.proof.verdict import ABSENT, FAILS, HOLDS, Equality

Kind = Literal["float32", "int8"]
KINDS: dict[Kind, tuple[str, str]] = {
    "float32": ("packed float32 = full", "weights laid out for this processor, the same numbers"),
    "int8": ("packed int8 near full", "weights in 8 bits, and each row of what they meet"),
}


def compare_packed(
    model: Model, texts: Sequence[Text], plain: Sequence[Outcome], tolerance: float, no_memory: str | None
) -> list[Equality]:
    """Each kind of packing against the model as it is, and against itself in company."""
    return [
        each
        for kind, (name, says) in KINDS.items()
        for each in _compare_kind(kind, name, says, model, texts, plain, tolerance, no_memory)
    ]


def _compare_kind(
    kind: Kind,
    name: str,
    says: str,
    model: Model,
    texts: Sequence[Text],
    plain: Sequence[Outcome],
    tolerance: float,
    no_memory: str | None,
) -> Iterator[Equality]:
    packed, why = _packed(model, kind)
    if packed is None:
        yield Equality(name, says, ABSENT, why=why)
        return
    yield _near(kind, name, says, model, packed, texts, plain, tolerance)
    yield compare_bits(f"same bits in any batch, {kind}", packed, texts, no_memory)


def _packed(model: Model, kind: Kind) -> tuple[Model | None, str]:
    if not any(isinstance(each, nn.Linear | Head) for each in model.modules()):
        return None, "It has no products to pack."
    if model.device.type != "cpu":
        return None, "Weights are packed for the processor, and this model is elsewhere."
    try:
        return pack(model, kind, deterministic=True), ""
    except PeasyError as error:
        return None, error.message


def _near(
    kind: Kind,
    name: str,
    says: str,
    model: Model,
    packed: Model,
    texts: Sequence[Text],
    plain: Sequence[Outcome],
    tolerance: float,
) -> Equality:
    found = alone(packed, texts)
    measures = measure(torch.cat([each.rows for each in found]), torch.cat([each.rows for each in plain]))
    allowed, distance = (tolerance, measures["largest"]) if kind == "float32" else (INT8, measures["relative"])
    if distance <= allowed:
        return Equality(name, says, HOLDS, distance, allowed, measures=measures)
    worst = max(range(len(texts)), key=lambda i: float(apart(found[i].rows, plain[i].rows).max()))
    where = part_ways(model, packed, alone, texts, worst, allowed)
    where = where or of_scores(found[worst].rows, plain[worst].rows, allowed)
    return Equality(name, says, FAILS, distance, allowed, "", where, worst, measures)


def measure(found: Tensor, right: Tensor) -> dict[str, float]:
    """How scores `[token, word]` diverge: in themselves, and as distributions of the next word.

    >>> measure(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]]))["kl"]
    0.0
    """
    far, found, right = apart(found, right), found.double(), right.double()
    error, size = (found - right).nan_to_num(0.0), right - right.mean(dim=-1, keepdim=True)
    size = size.nan_to_num(0.0, 0.0, 0.0)
    kl = (right.softmax(-1) * (right.log_softmax(-1) - found.log_softmax(-1)).nan_to_num(0.0)).sum(-1)
    relative = float(error.square().mean().sqrt() / size.square().mean().sqrt().clamp(min=1e-12))
    return {
        "largest": float(far.max()),
        "mean": float(far.mean()),
        "relative": relative if bool(far.isfinite().all()) else float("inf"),
        "kl": max(float(kl.mean()), 0.0),
        "top-1": float((found.argmax(-1) == right.argmax(-1)).double().mean()),
    }


def compare_bits(name: str, model: Model, texts: Sequence[Text], no_memory: str | None = None) -> Equality:
    """The same text read alone, in company and in other pieces: how many of its numbers differ in any bit?"""
    says = "alone, in company, in another order and in pieces"
    packing = packing_of(model)
    if no_memory:
        return Equality(name, says, ABSENT, why=no_memory)
    if packing is None or packing.held is None or not packing.held.equal:
        held = "" if packing is None or packing.held is None else packing.held.says()
        return Equality(name, says, ABSENT, why=f"It is not promised here. {held}".strip())
    right, differing, worst = [_read(model, [text])[0] for text in texts], 0, None
    for order, cut in _companies(len(texts)):
        found = _read(model, [texts[index] for index in order], cut)
        for index, scores in zip(order, found, strict=True):
            different = int((scores != right[index]).sum())
            worst = index if different and worst is None else worst
            differing += different
    measures = {"differing": float(differing)}
    if not differing:
        return Equality(name, says, HOLDS, 0.0, 0.0, measures=measures)
    return Equality(name, says, FAILS, None, 0.0, f"{differing:,} numbers differ.", None, worst, measures)


def _companies(count: int) -> Iterator[tuple[list[int], int]]:
    """Who is read with whom, and how many tokens come first."""
    everybody = list(range(count))
    yield everybody, 0
    yield everybody[::-1], 1
    yield everybody[:1], 3
    for one, other in pairwise(everybody):
        yield [other, one], 2


def _read(model: Model, texts: Sequence[Text], cut: int = 0) -> list[Tensor]:
    """The scores after every token, read in one piece or in two with `cut` tokens in the first."""
    memories = [model.start(**source_of(model, [text])) for text in texts]
    pieces: list[list[Tensor]] = [[] for _ in texts]
    for part in (slice(0, cut), slice(cut, None)):
        rows = [index for index, text in enumerate(texts) if text.ids[part]]
        if rows:
            read = model.read([texts[row].ids[part] for row in rows], [memories[row] for row in rows], every=True)
            for row, scores in zip(rows, read, strict=True):
                pieces[row].append(scores)
    return [torch.cat(each) for each in pieces]
