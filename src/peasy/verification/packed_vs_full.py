"""Compares packed (float32, int8) logits with full precision, and checks batch invariance."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from peasy.errors import PeasyError
from peasy.generation.packed import pack, packing_of
from peasy.models.protocol import Model
from peasy.nn.lm_head import LMHead
from peasy.verification.divergence import divergence_of_logits, first_divergence
from peasy.verification.paths import PathResult, TokenSequence, source_inputs, uncached
from peasy.verification.tolerance import INT8_TOLERANCE, relative_error
from peasy.verification.verdict import FAILS, HOLDS, NOT_APPLICABLE, Equality

PackedDtype = Literal["float32", "int8"]
PACKED_EQUALITIES: dict[PackedDtype, tuple[str, str]] = {
    "float32": ("packed float32 = full", "the same float32 weights, packed for this processor"),
    "int8": ("packed int8 ≈ full", "int8 weights, and int8 activations quantised per row"),
}


def compare_packed(
    model: Model,
    sequences: Sequence[TokenSequence],
    reference: Sequence[PathResult],
    tolerance: float,
    no_cache_reason: str | None,
) -> list[Equality]:
    """Compare each packing with the full-precision model, and check its batch invariance."""
    return [
        equality
        for dtype, (name, description) in PACKED_EQUALITIES.items()
        for equality in _compare_dtype(
            dtype, name, description, model, sequences, reference, tolerance, no_cache_reason
        )
    ]


def _compare_dtype(
    dtype: PackedDtype,
    name: str,
    description: str,
    model: Model,
    sequences: Sequence[TokenSequence],
    reference: Sequence[PathResult],
    tolerance: float,
    no_cache_reason: str | None,
) -> Iterator[Equality]:
    packed, reason = _try_pack(model, dtype)
    if packed is None:
        yield Equality(name, description, NOT_APPLICABLE, reason=reason)
        return
    yield _compare_logits(dtype, name, description, model, packed, sequences, reference, tolerance)
    yield compare_batch_invariance(f"batch invariant, {dtype}", packed, sequences, no_cache_reason)


def _try_pack(model: Model, dtype: PackedDtype) -> tuple[Model | None, str]:
    if not any(isinstance(module, nn.Linear | LMHead) for module in model.modules()):
        return None, "It has no linear layers to pack."
    if model.device.type != "cpu":
        return None, "Packing is only for the CPU, and this model is on another device."
    try:
        return pack(model, dtype, deterministic=True), ""
    except PeasyError as error:
        return None, error.message


def _compare_logits(
    dtype: PackedDtype,
    name: str,
    description: str,
    model: Model,
    packed: Model,
    sequences: Sequence[TokenSequence],
    reference: Sequence[PathResult],
    tolerance: float,
) -> Equality:
    results = uncached(packed, sequences)
    metrics = logit_metrics(
        torch.cat([result.token_outputs for result in results]),
        torch.cat([result.token_outputs for result in reference]),
    )
    allowed, distance = (
        (tolerance, metrics["max_error"]) if dtype == "float32" else (INT8_TOLERANCE, metrics["rms_error"])
    )
    if distance <= allowed:
        return Equality(name, description, HOLDS, distance, allowed, metrics=metrics)
    worst = max(
        range(len(sequences)),
        key=lambda i: float(relative_error(results[i].token_outputs, reference[i].token_outputs).max()),
    )
    divergence = first_divergence(model, packed, uncached, sequences, worst, allowed)
    divergence = divergence or divergence_of_logits(
        results[worst].token_outputs, reference[worst].token_outputs, allowed
    )
    return Equality(name, description, FAILS, distance, allowed, "", divergence, worst, metrics)


def logit_metrics(actual: Tensor, expected: Tensor) -> dict[str, float]:
    """Return error metrics of logits `[token, vocab]`: relative errors, KL divergence, top-1 agreement.

    >>> logit_metrics(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]]))["kl"]
    0.0
    """
    errors, actual, expected = relative_error(actual, expected), actual.double(), expected.double()
    difference, centred = (actual - expected).nan_to_num(0.0), expected - expected.mean(dim=-1, keepdim=True)
    centred = centred.nan_to_num(0.0, 0.0, 0.0)
    kl = (expected.softmax(-1) * (expected.log_softmax(-1) - actual.log_softmax(-1)).nan_to_num(0.0)).sum(-1)
    rms_error = float(difference.square().mean().sqrt() / centred.square().mean().sqrt().clamp(min=1e-12))
    return {
        "max_error": float(errors.max()),
        "mean_error": float(errors.mean()),
        "rms_error": rms_error if bool(errors.isfinite().all()) else float("inf"),
        "kl": max(float(kl.mean()), 0.0),
        "top-1": float((actual.argmax(-1) == expected.argmax(-1)).double().mean()),
    }


def compare_batch_invariance(
    name: str, model: Model, sequences: Sequence[TokenSequence], no_cache_reason: str | None = None
) -> Equality:
    """Check batch invariance: count logits that differ in any bit between batches, orders and chunks."""
    description = "alone, in batches, in another order and in chunks"
    packing = packing_of(model)
    if no_cache_reason:
        return Equality(name, description, NOT_APPLICABLE, reason=no_cache_reason)
    if packing is None or packing.batch_invariance is None or not packing.batch_invariance.holds:
        reason = "" if packing is None or packing.batch_invariance is None else packing.batch_invariance.summary()
        return Equality(
            name, description, NOT_APPLICABLE, reason=f"Batch invariance is not guaranteed here. {reason}".strip()
        )
    expected, num_differing, worst = [_run_logits(model, [sequence])[0] for sequence in sequences], 0, None
    for order, first_chunk in _batch_orders(len(sequences)):
        batch_logits = _run_logits(model, [sequences[index] for index in order], first_chunk)
        for index, logits in zip(order, batch_logits, strict=True):
            different = int((logits != expected[index]).sum())
            worst = index if different and worst is None else worst
            num_differing += different
    metrics = {"num_differing": float(num_differing)}
    if not num_differing:
        return Equality(name, description, HOLDS, 0.0, 0.0, metrics=metrics)
    return Equality(name, description, FAILS, None, 0.0, f"{num_differing:,} logits differ.", None, worst, metrics)


def _batch_orders(num_sequences: int) -> Iterator[tuple[list[int], int]]:
    """Yield batches of sequence indices, with the number of tokens in the first chunk."""
    indices = list(range(num_sequences))
    yield indices, 0
    yield indices[::-1], 1
    yield indices[:1], 3
    for first, second in pairwise(indices):
        yield [second, first], 2


def _run_logits(model: Model, sequences: Sequence[TokenSequence], first_chunk: int = 0) -> list[Tensor]:
    """Return the logits of every token, in two chunks with `first_chunk` tokens in the first (0: in one chunk)."""
    states = [model.new_state(**source_inputs(model, [sequence])) for sequence in sequences]
    chunks: list[list[Tensor]] = [[] for _ in sequences]
    for part in (slice(0, first_chunk), slice(first_chunk, None)):
        rows = [index for index, sequence in enumerate(sequences) if sequence.ids[part]]
        if rows:
            batch_logits = model.forward_varlen(
                [sequences[row].ids[part] for row in rows], [states[row] for row in rows], all_positions=True
            )
            for row, logits in zip(rows, batch_logits, strict=True):
                chunks[row].append(logits)
    return [torch.cat(logits) for logits in chunks]
