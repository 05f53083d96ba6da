"""Equalities of a model: each compares an execution path with the uncached reference and locates the divergence."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch

from peasy.checkpoint import huggingface
from peasy.checkpoint.model import load_model, save_model
from peasy.checkpoint.ram import format_bytes
from peasy.checkpoint.store import read_checkpoint
from peasy.errors import InvalidInput, PeasyError, ResourceUnavailable
from peasy.models.protocol import Model
from peasy.verification import paths
from peasy.verification.divergence import divergence_of_logits, first_divergence, max_relative_error, tolerance_for
from peasy.verification.fused_vs_formula import compare_fused
from peasy.verification.packed_vs_full import compare_packed
from peasy.verification.paths import ExecutionPath, ProofInputs, TokenSequence
from peasy.verification.verdict import FAILS, HOLDS, NOT_APPLICABLE, Equality, Proof

Progress = Callable[[int, int], None]
"""Callback with the number of finished checks and their total."""


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
    dtype = str(_dtype(model)).removeprefix("torch.")
    return Proof(name, model.config.kind, dtype, len(sequences), num_tokens, equalities, tuple(notes))


def _run_checks(model: Model, sequences: Sequence[TokenSequence], progress: Progress | None) -> Iterator[Equality]:
    reference, tolerance = paths.uncached(model, sequences), tolerance_for(_dtype(model))
    inputs = ProofInputs(model, sequences, reference, tolerance, _no_cache_reason(model))
    for done, check in enumerate(CHECKS.values()):
        if progress is not None:
            progress(done, len(CHECKS))
        yield from check(inputs)
    if progress is not None:
        progress(len(CHECKS), len(CHECKS))


def _check_batched(inputs: ProofInputs) -> Iterator[Equality]:
    name = "single = batched"
    if inputs.no_cache_reason is None:
        yield _compare(inputs, name, "all sequences in one batch, each with its own KV cache", paths.varlen_batch)
    else:
        yield _compare(inputs, name, "all sequences in one padded batch", paths.padded_batch)


def _check_padded(inputs: ProofInputs) -> Iterator[Equality]:
    description = f"{paths.NUM_PADDING_TOKENS} padding tokens before or after a sequence"
    padded_paths = (paths.padded("left"), paths.padded("right"), paths.padded_batch)
    results = [_compare(inputs, "padded = unpadded", description, path) for path in padded_paths]
    yield max(results, key=lambda result: (result.verdict == FAILS, result.distance or 0.0))


def _check_cached(inputs: ProofInputs, name: str, description: str, path: ExecutionPath) -> list[Equality]:
    if inputs.no_cache_reason is None:
        return [_compare(inputs, name, description, path)]
    return [Equality(name, description, NOT_APPLICABLE, reason=inputs.no_cache_reason)]


def _check_copy(inputs: ProofInputs, name: str, description: str, copy: Callable[[Model], Model]) -> list[Equality]:
    try:
        reloaded = copy(inputs.model)
    except PeasyError as error:
        reason = " ".join(filter(None, [error.message, error.hint]))
        return [Equality(name, description, NOT_APPLICABLE, reason=reason)]
    return [_compare(inputs, name, description, paths.uncached, reloaded)]


_CACHED = "half of the sequence as a prompt, then one token at a time with the KV cache"
_CHUNKED = "in chunks of 1, 2, 3, 5, ... tokens with the KV cache"
_EXPORTED = "exported to the Hugging Face format and loaded again"
_SAVED = "saved as a peasy checkpoint and loaded again"

CHECKS: dict[str, Callable[[ProofInputs], Iterable[Equality]]] = {
    "cached": lambda inputs: _check_cached(inputs, "cached = uncached", _CACHED, paths.cached),
    "batched": _check_batched,
    "padded": _check_padded,
    "chunked": lambda inputs: _check_cached(inputs, "whole = chunked", _CHUNKED, paths.chunked),
    "fused": lambda inputs: [compare_fused(inputs)],
    "packed": compare_packed,
    "exported": lambda inputs: _check_copy(inputs, "exported = original", _EXPORTED, export_roundtrip),
    "saved": lambda inputs: _check_copy(inputs, "saved = original", _SAVED, save_roundtrip),
}
"""Checks of a proof, in order."""


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
    both = list(zip(results, inputs.reference, strict=True))
    pairs = [(actual.token_outputs, expected.token_outputs) for actual, expected in both]
    vectors = [(a.pooled, e.pooled) for a, e in both if a.pooled is not None and e.pooled is not None]
    distance, worst = max_relative_error(pairs)
    vector_distance, vector_worst = max_relative_error(vectors) if vectors else (0.0, 0)
    if max(distance, vector_distance) <= tolerance:
        return Equality(name, description, HOLDS, max(distance, vector_distance), tolerance)
    reason = "The token vectors agree, but the pooled vector does not." if distance <= tolerance else ""
    if reason:
        distance, worst = vector_distance, vector_worst
    divergence = first_divergence(inputs.model, other_model, execution_path, inputs.sequences, worst, tolerance)
    if divergence is None and not reason:
        divergence = divergence_of_logits(*pairs[worst], tolerance)
    return Equality(name, description, FAILS, distance, tolerance, reason, divergence, worst)


def _dtype(model: Model) -> torch.dtype:
    """Return the dtype of the model's weights; float32 for a model without weights."""
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32)


def export_roundtrip(model: Model) -> Model:
    """Return a copy through a Hugging Face folder; raises if no family supports the model."""

    def write_and_read(folder: Path) -> Model:
        huggingface.write_folder(folder, model.config, model.state_dict())
        return huggingface.load_model(huggingface.read_folder(folder))

    return _roundtrip(model, write_and_read)


def save_roundtrip(model: Model) -> Model:
    """Return a copy through a peasy checkpoint."""

    def write_and_read(folder: Path) -> Model:
        save_model(folder, model)
        return load_model(read_checkpoint(folder))

    return _roundtrip(model, write_and_read)


def _roundtrip(model: Model, write_and_read: Callable[[Path], Model]) -> Model:
    """Run a round trip in a temporary folder; the mapped weights are copied before it is deleted."""
    with tempfile.TemporaryDirectory(prefix="peasy-", ignore_cleanup_errors=True) as folder:
        free = shutil.disk_usage(folder).free
        if free < 1.1 * model.weight_bytes():
            raise ResourceUnavailable(
                f"A copy needs {format_bytes(model.weight_bytes())} in {folder}; {format_bytes(free)} are free."
            )
        reloaded = write_and_read(Path(folder) / "copy")
        reloaded.load_state_dict({name: tensor.clone() for name, tensor in reloaded.state_dict().items()}, assign=True)
    return reloaded.to(model.device)
