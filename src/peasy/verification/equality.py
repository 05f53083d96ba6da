"""Equalities of a model: each compares an execution path with the uncached reference and locates the divergence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from peasy.errors import InvalidInput, PeasyError
from peasy.models.protocol import Model
from peasy.verification import paths
from peasy.verification.divergence import divergence_of_logits, first_divergence, max_relative_error
from peasy.verification.fused_vs_formula import compare_fused
from peasy.verification.packed_vs_full import compare_packed
from peasy.verification.paths import ExecutionPath, PathResult, TokenSequence
from peasy.verification.roundtrip import export_roundtrip, save_roundtrip
from peasy.verification.tolerance import tolerance_for
from peasy.verification.verdict import FAILS, HOLDS, NOT_APPLICABLE, Equality, Proof

Progress = Callable[[int, int], None]
"""Callback with the number of finished checks and their total."""


@dataclass(frozen=True, eq=False)
class ProofInputs:
    """Common inputs of all checks: the model, its sequences, their reference outputs, and the tolerance."""

    model: Model
    sequences: Sequence[TokenSequence]
    reference: list[PathResult]
    tolerance: float


def prove_model(
    model: Model,
    sequences: Sequence[TokenSequence],
    *,
    name: str = "model",
    notes: Sequence[str] = (),
    progress: Progress | None = None,
) -> Proof:
    """Check every equality of a model on these sequences.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> proof = prove_model(build(preset("gpt-tiny"), seed=1), [TokenSequence((1, 2, 3, 4)), TokenSequence((5, 6))])
    >>> proof.passed, proof["cached = uncached"].verdict
    (True, 'holds')
    """
    if not sequences or not all(sequence.ids for sequence in sequences):
        raise InvalidInput("There are no tokens to check.", hint="Give at least one text; none may be empty.")
    training = model.training
    try:
        with torch.inference_mode():
            model.eval()
            equalities = tuple(_run_checks(model, sequences, progress))
    finally:
        model.train(training)
    num_tokens = sum(len(sequence.ids) for sequence in sequences)
    return Proof(name, model.config.kind, _dtype_name(model), len(sequences), num_tokens, equalities, tuple(notes))


def _run_checks(model: Model, sequences: Sequence[TokenSequence], progress: Progress | None) -> Iterator[Equality]:
    inputs = ProofInputs(model, sequences, paths.uncached(model, sequences), tolerance_for(_dtype(model)))
    checks: list[Callable[[ProofInputs], list[Equality]]] = [
        _check_cached, _check_batched, _check_padded, _check_chunked,
        _check_fused, _check_packed, _check_exported, _check_saved,
    ]  # fmt: skip
    for done, check in enumerate(checks):
        if progress is not None:
            progress(done, len(checks))
        yield from check(inputs)
    if progress is not None:
        progress(len(checks), len(checks))


def _check_cached(inputs: ProofInputs) -> list[Equality]:
    description = "half of the sequence as a prompt, then one token at a time with the KV cache"
    return [_compare_cached(inputs, "cached = uncached", description, paths.cached)]


def _check_chunked(inputs: ProofInputs) -> list[Equality]:
    description = "in chunks of 1, 2, 3, 5, ... tokens with the KV cache"
    return [_compare_cached(inputs, "whole = chunked", description, paths.chunked)]


def _check_batched(inputs: ProofInputs) -> list[Equality]:
    name = "single = batched"
    if _no_cache_reason(inputs.model) is None:
        description = "all sequences in one batch, each with its own KV cache"
        return [_compare(inputs, name, description, paths.varlen_batch)]
    return [_compare(inputs, name, "all sequences in one padded batch", paths.padded_batch)]


def _check_padded(inputs: ProofInputs) -> list[Equality]:
    description = f"{paths.NUM_PADDING_TOKENS} padding tokens before or after a sequence"
    results = [_compare(inputs, "padded = unpadded", description, paths.padded(side)) for side in ("left", "right")]
    results += [_compare(inputs, "padded = unpadded", description, paths.padded_batch)]
    return [max(results, key=lambda result: (result.verdict == FAILS, result.distance or 0.0))]


def _check_fused(inputs: ProofInputs) -> list[Equality]:
    return [compare_fused(inputs.model, inputs.sequences, inputs.tolerance)]


def _check_packed(inputs: ProofInputs) -> list[Equality]:
    reason = _no_cache_reason(inputs.model)
    return compare_packed(inputs.model, inputs.sequences, inputs.reference, inputs.tolerance, reason)


def _check_exported(inputs: ProofInputs) -> list[Equality]:
    description = "exported to the Hugging Face format and loaded again"
    return [_compare_roundtrip(inputs, "exported = original", description, export_roundtrip)]


def _check_saved(inputs: ProofInputs) -> list[Equality]:
    return [
        _compare_roundtrip(inputs, "saved = original", "saved as a peasy checkpoint and loaded again", save_roundtrip)
    ]


def _compare_roundtrip(
    inputs: ProofInputs, name: str, description: str, roundtrip: Callable[[Model], Model]
) -> Equality:
    try:
        reloaded = roundtrip(inputs.model)
    except PeasyError as error:
        return Equality(name, description, NOT_APPLICABLE, reason=" ".join(filter(None, [error.message, error.hint])))
    return _compare(inputs, name, description, paths.uncached, reloaded)


def _compare_cached(inputs: ProofInputs, name: str, description: str, execution_path: ExecutionPath) -> Equality:
    reason = _no_cache_reason(inputs.model)
    return (
        Equality(name, description, NOT_APPLICABLE, reason=reason)
        if reason
        else _compare(inputs, name, description, execution_path)
    )


def _no_cache_reason(model: Model) -> str | None:
    """Return why the model has no KV cache, or None if it has one."""
    if model.is_encoder_decoder:
        return None
    try:
        model.new_state()
    except InvalidInput as error:
        return error.message
    return None


def _compare(
    inputs: ProofInputs, name: str, description: str, execution_path: ExecutionPath, other_model: Model | None = None
) -> Equality:
    other_model = inputs.model if other_model is None else other_model
    results, tolerance = execution_path(other_model, inputs.sequences, None), inputs.tolerance
    pairs = [
        (actual.token_outputs, expected.token_outputs)
        for actual, expected in zip(results, inputs.reference, strict=True)
    ]
    distance, worst = max_relative_error(pairs)
    vectors = [
        (actual.pooled, expected.pooled)
        for actual, expected in zip(results, inputs.reference, strict=True)
        if actual.pooled is not None and expected.pooled is not None
    ]
    vector_distance, vector_worst = max_relative_error(vectors) if vectors else (0.0, 0)
    if max(distance, vector_distance) <= tolerance:
        return Equality(name, description, HOLDS, max(distance, vector_distance), tolerance)
    reason = ""
    if distance <= tolerance:
        distance, worst, reason = (
            vector_distance,
            vector_worst,
            "The token vectors agree, but the pooled vector does not.",
        )
    divergence = first_divergence(inputs.model, other_model, execution_path, inputs.sequences, worst, tolerance)
    if divergence is None and not reason:
        divergence = divergence_of_logits(*pairs[worst], tolerance)
    return Equality(name, description, FAILS, distance, tolerance, reason, divergence, worst)


def _dtype(model: Model) -> torch.dtype:
    """Return the dtype of the model's weights; float32 for a model without weights."""
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32)


def _dtype_name(model: Model) -> str:
    return str(_dtype(model)).removeprefix("torch.")
