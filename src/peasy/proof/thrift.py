"""Packed close to full: how far the scores of thrifty weights diverge; and whether company changes any bit."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from peasy.errors import PeasyError
from peasy.models.protocol import Model
from peasy.proof.parting import of_scores, part_ways
from peasy.proof.road import Outcome, Text, alone
from peasy.proof.tolerance import INT8, apart
from peasy.proof.verdict import ABSENT, FAILS, HOLDS, Equality

PACKED = "peasy.generation.packed"
KINDS = {
    "float32": "weights laid out for this processor, same numbers",
    "int8": "weights in 8 bits, rows of activations too",
}


def compare_packed(model: Model, texts: Sequence[Text], plain: Sequence[Outcome], tolerance: float) -> list[Equality]:
    """Each kind of packing against the model as it is."""
    return [_compare_kind(kind, says, model, texts, plain, tolerance) for kind, says in KINDS.items()]


def _compare_kind(
    kind: str, says: str, model: Model, texts: Sequence[Text], plain: Sequence[Outcome], tolerance: float
) -> Equality:
    name = f"packed {kind} = full" if kind == "float32" else f"packed {kind} near full"
    pack, why = _packer(model)
    if pack is None:
        return Equality(name, says, ABSENT, why=why)
    try:
        packed = pack(model, kind)
    except PeasyError as error:
        return Equality(name, says, ABSENT, why=error.message)
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


def _packer(model: Model) -> tuple[Callable[[Model, Any], Model] | None, str]:
    if find_spec(PACKED) is None:
        return None, "This peasy packs no weights."
    if not any(isinstance(each, torch.nn.Linear) for each in model.modules()):
        return None, "It has no linear maps to pack."
    return import_module(PACKED).pack, ""


def compare_bits(model: Model, texts: Sequence[Text], no_memory: str | None) -> Equality:
    """The same text read alone, in company and in other pieces: how many of its numbers differ in any bit?"""
    name, says = "same bits in any batch", "alone, in company, in another order and in pieces"
    if no_memory:
        return Equality(name, says, ABSENT, why=no_memory)
    if find_spec(PACKED) is None or not _promises_bits(model):
        return Equality(name, says, ABSENT, why="Only a deterministic model promises it, and this one is not.")
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


def _promises_bits(model: Model) -> bool:
    return bool(getattr(model, "deterministic", False))


def _companies(count: int) -> Iterator[tuple[list[int], int]]:
    everybody = list(range(count))
    yield everybody, 0
    yield everybody[::-1], 1
    for one, other in pairwise(everybody):
        yield [other, one], 2


def _read(model: Model, texts: Sequence[Text], cut: int = 0) -> list[Tensor]:
    """The scores after every token, read in one piece or in two with `cut` tokens in the first."""
    memories = [model.start(**_source(model, text)) for text in texts]
    pieces: list[list[Tensor]] = [[] for _ in texts]
    for part in (slice(0, cut), slice(cut, None)):
        rows = [index for index, text in enumerate(texts) if text.ids[part]]
        if rows:
            read = model.read([texts[row].ids[part] for row in rows], [memories[row] for row in rows], every=True)
            for row, scores in zip(rows, read, strict=True):
                pieces[row].append(scores)
    return [torch.cat(each) for each in pieces]


def _source(model: Model, text: Text) -> dict[str, Tensor]:
    return {} if text.source is None else {"source": torch.tensor([text.source], device=model.device)}
