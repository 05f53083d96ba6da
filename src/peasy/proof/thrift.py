"""Compares packed (float32, int8) logits with full precision, and checks batch invariance."""

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
    "float32": ("packed float32 = full", "the same float32 weights, packed for this processor"),
    "int8": ("packed int8 near full", "int8 weights, and int8 activations quantised per row"),
}


def compare_packed(
    model: Model, texts: Sequence[Text], plain: Sequence[Outcome], tolerance: float, no_memory: str | None
) -> list[Equality]:
    """Compare each packing with the full-precision model, and check its batch invariance."""
    return [
        equality
        for kind, (name, description) in KINDS.items()
        for equality in _compare_kind(kind, name, description, model, texts, plain, tolerance, no_memory)
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
    if not any(isinstance(module, nn.Linear | Head) for module in model.modules()):
        return None, "It has no linear layers to pack."
    if model.device.type != "cpu":
        return None, "Packing is only for the CPU, and this model is on another device."
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
    results = alone(packed, texts)
    measures = measure(torch.cat([result.rows for result in results]), torch.cat([result.rows for result in plain]))
    allowed, distance = (tolerance, measures["largest"]) if kind == "float32" else (INT8, measures["relative"])
    if distance <= allowed:
        return Equality(name, says, HOLDS, distance, allowed, measures=measures)
    worst = max(range(len(texts)), key=lambda i: float(apart(results[i].rows, plain[i].rows).max()))
    where = part_ways(model, packed, alone, texts, worst, allowed)
    where = where or of_scores(results[worst].rows, plain[worst].rows, allowed)
    return Equality(name, says, FAILS, distance, allowed, "", where, worst, measures)


def measure(found: Tensor, right: Tensor) -> dict[str, float]:
    """Return error metrics of logits `[token, vocab]`: relative errors, KL divergence, top-1 agreement.

    >>> measure(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]]))["kl"]
    0.0
    """
    errors, found, right = apart(found, right), found.double(), right.double()
    difference, centred = (found - right).nan_to_num(0.0), right - right.mean(dim=-1, keepdim=True)
    centred = centred.nan_to_num(0.0, 0.0, 0.0)
    kl = (right.softmax(-1) * (right.log_softmax(-1) - found.log_softmax(-1)).nan_to_num(0.0)).sum(-1)
    relative = float(difference.square().mean().sqrt() / centred.square().mean().sqrt().clamp(min=1e-12))
    return {
        "largest": float(errors.max()),
        "mean": float(errors.mean()),
        "relative": relative if bool(errors.isfinite().all()) else float("inf"),
        "kl": max(float(kl.mean()), 0.0),
        "top-1": float((found.argmax(-1) == right.argmax(-1)).double().mean()),
    }


def compare_bits(name: str, model: Model, texts: Sequence[Text], no_memory: str | None = None) -> Equality:
    """Check batch invariance: count logits that differ in any bit between batches, orders and chunks."""
    description = "alone, in batches, in another order and in chunks"
    packing = packing_of(model)
    if no_memory:
        return Equality(name, description, ABSENT, why=no_memory)
    if packing is None or packing.held is None or not packing.held.equal:
        reason = "" if packing is None or packing.held is None else packing.held.says()
        return Equality(name, description, ABSENT, why=f"Batch invariance is not guaranteed here. {reason}".strip())
    expected, differing, worst = [_read(model, [text])[0] for text in texts], 0, None
    for order, cut in _companies(len(texts)):
        batch_logits = _read(model, [texts[index] for index in order], cut)
        for index, logits in zip(order, batch_logits, strict=True):
            different = int((logits != expected[index]).sum())
            worst = index if different and worst is None else worst
            differing += different
    measures = {"differing": float(differing)}
    if not differing:
        return Equality(name, description, HOLDS, 0.0, 0.0, measures=measures)
    return Equality(name, description, FAILS, None, 0.0, f"{differing:,} logits differ.", None, worst, measures)


def _companies(count: int) -> Iterator[tuple[list[int], int]]:
    """Yield batches of sequence indices, with the number of tokens in the first chunk."""
    indices = list(range(count))
    yield indices, 0
    yield indices[::-1], 1
    yield indices[:1], 3
    for first, second in pairwise(indices):
        yield [second, first], 2


def _read(model: Model, texts: Sequence[Text], cut: int = 0) -> list[Tensor]:
    """Return the logits of every token, computed in two chunks with `cut` tokens in the first (0: in one chunk)."""
    states = [model.start(**source_of(model, [text])) for text in texts]
    chunks: list[list[Tensor]] = [[] for _ in texts]
    for part in (slice(0, cut), slice(cut, None)):
        rows = [index for index, text in enumerate(texts) if text.ids[part]]
        if rows:
            batch_logits = model.read([texts[row].ids[part] for row in rows], [states[row] for row in rows], every=True)
            for row, logits in zip(rows, batch_logits, strict=True):
                chunks[row].append(logits)
    return [torch.cat(logits) for logits in chunks]
