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
from peasy.verification.divergence import (
    INT8_TOLERANCE,
    divergence_of_logits,
    first_divergence,
    max_relative_error,
    relative_error,
)
from peasy.verification.paths import ProofInputs, TokenSequence, uncached, varlen_logits
from peasy.verification.verdict import FAILS, HOLDS, NOT_APPLICABLE, Equality

_PackedDtype = Literal["float32", "int8"]
_PACKED_EQUALITIES: dict[_PackedDtype, tuple[str, str]] = {
    "float32": ("packed float32 = full", "the same float32 weights, packed for this processor"),
    "int8": ("packed int8 ≈ full", "int8 weights, and int8 activations quantised per row"),
}


def compare_packed(inputs: ProofInputs) -> Iterator[Equality]:
    """Compare each packing with the full-precision model, and check its batch invariance."""
    for dtype, (name, description) in _PACKED_EQUALITIES.items():
        packed, reason = _try_pack(inputs.model, dtype)
        if packed is None:
            yield Equality(name, description, NOT_APPLICABLE, reason=reason)
            continue
        yield _compare_logits(inputs, packed, dtype, name, description)
        yield compare_batch_invariance(f"batch invariant, {dtype}", packed, inputs.sequences, inputs.no_cache_reason)


def _try_pack(model: Model, dtype: _PackedDtype) -> tuple[Model | None, str]:
    if not any(isinstance(module, nn.Linear | LMHead) for module in model.modules()):
        return None, "It has no linear layers to pack."
    if model.device.type != "cpu":
        return None, "Packing is only for the CPU, and this model is on another device."
    try:
        return pack(model, dtype, deterministic=True), ""
    except PeasyError as error:
        return None, error.message


def _compare_logits(inputs: ProofInputs, packed: Model, dtype: _PackedDtype, name: str, description: str) -> Equality:
    actual = [result.token_outputs for result in uncached(packed, inputs.sequences)]
    expected = [result.token_outputs for result in inputs.reference]
    metrics = _logit_metrics(torch.cat(actual), torch.cat(expected))
    exact = dtype == "float32"
    allowed, distance = (inputs.tolerance, metrics["max_error"]) if exact else (INT8_TOLERANCE, metrics["rms_error"])
    if distance <= allowed:
        return Equality(name, description, HOLDS, distance, allowed, metrics=metrics)
    _, worst = max_relative_error(list(zip(actual, expected, strict=True)))
    divergence = first_divergence(inputs.model, packed, uncached, inputs.sequences, worst, allowed)
    divergence = divergence or divergence_of_logits(actual[worst], expected[worst], allowed)
    return Equality(name, description, FAILS, distance, allowed, "", divergence, worst, metrics)


def _logit_metrics(actual: Tensor, expected: Tensor) -> dict[str, float]:
    """Return error metrics of logits `[token, vocab]`: relative errors, KL divergence, top-1 agreement.

    >>> _logit_metrics(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]]))["kl"]
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
    invariance = packing.batch_invariance if packing is not None else None
    if no_cache_reason or invariance is None or not invariance.holds:
        reason = f"Batch invariance is not guaranteed here. {invariance.summary() if invariance else ''}".strip()
        return Equality(name, description, NOT_APPLICABLE, reason=no_cache_reason or reason)
    expected = [varlen_logits(model, [sequence], 0)[0] for sequence in sequences]
    num_differing, worst = 0, None
    for order, first_chunk in _batch_orders(len(sequences)):
        batch_logits = varlen_logits(model, [sequences[index] for index in order], first_chunk)
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
