"""Equalities of a model: each compares an execution path with the uncached reference and locates the divergence."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from peasy.checkpoint import huggingface
from peasy.checkpoint.model import load_model, save_model
from peasy.checkpoint.ram import format_bytes
from peasy.checkpoint.store import read_checkpoint
from peasy.errors import InvalidInput, PeasyError, ResourceUnavailable
from peasy.generation.packed import pack, packing_of
from peasy.models.protocol import Model
from peasy.nn.attention import Attention
from peasy.nn.lm_head import LMHead
from peasy.nn.module_path import ModulePath
from peasy.nn.recurrent import AdditiveAttention
from peasy.nn.tap import HEAD_STEPS, Activation, Tap
from peasy.verification import paths
from peasy.verification.paths import ExecutionPath, ProofInputs, StepRecorder, TokenSequence
from peasy.verification.verdict import FAILS, HOLDS, NOT_APPLICABLE, DivergencePoint, Equality, Proof

_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Relative to the largest value. In a deep model, different summation orders differ by a few hundred roundings."""

_INT8_TOLERANCE = 0.10
"""Tolerance for int8 weights: RMS error over RMS of the logits. Random models, whose logits are small sums of large
terms, had up to 0.04."""


def tolerance_for(dtype: torch.dtype) -> float:
    """Return the relative tolerance for results of this dtype."""
    if dtype not in _TOLERANCES:
        raise InvalidInput(f"There is no tolerance for {dtype}.", hint="Load the model in float32 or bfloat16.")
    return _TOLERANCES[dtype]


def relative_error(actual: Tensor, expected: Tensor) -> Tensor:
    """Return the elementwise error relative to the largest expected value (at least 1); NaN counts as infinite."""
    actual, expected = actual.detach().double(), expected.detach().double()
    size = expected[expected.isfinite()].abs().max() if bool(expected.isfinite().any()) else expected.new_ones(())
    difference = torch.where(actual == expected, 0.0, (actual - expected).abs() / size.clamp(min=1.0))
    return difference.nan_to_num(nan=torch.inf)


def _first_divergence(
    model: Model,
    other_model: Model,
    execution_path: ExecutionPath,
    sequences: Sequence[TokenSequence],
    index: int,
    tolerance: float,
) -> DivergencePoint | None:
    """Return the first step of sequence `index` where `other_model` on `execution_path` diverges from the reference."""
    reference, recorder = StepRecorder(index), StepRecorder(index)
    paths.uncached(model, sequences, reference)
    execution_path(other_model, sequences, recorder)
    expected, actual = reference.concatenate(), recorder.concatenate()
    for (path, step), expected_values in expected.items():
        actual_values = actual.get((path, step))
        if actual_values is None:
            continue  # not computed on this path, e.g. a source that was encoded before
        point = _divergence_of_step(path, step, actual_values, expected_values, tolerance)
        if point is not None:
            return point
    return None


def _divergence_of_logits(actual: Tensor, expected: Tensor, tolerance: float) -> DivergencePoint:
    """Return the first token whose logits differ, if no inner step does."""
    position = 0
    if actual.shape == expected.shape:
        position = int((relative_error(actual, expected).flatten(1).amax(dim=1) > tolerance).int().argmax())
    return DivergencePoint("logits", None, "", "logits", None, position)


def _divergence_of_step(
    path: ModulePath, step: str, actual: Tensor, expected: Tensor, tolerance: float
) -> DivergencePoint | None:
    """Return the first position, and head if the step has heads, of one step that differs; None if none does."""
    if actual.shape != expected.shape:
        return DivergencePoint(path.stack, path.layer, path.part, step, None, 0)
    differs = relative_error(actual, expected).amax(dim=-1) > tolerance
    if not bool(differs.any()):
        return None
    if step not in HEAD_STEPS:
        return DivergencePoint(path.stack, path.layer, path.part, step, None, int(differs.int().argmax()))
    position = int(differs.any(dim=0).int().argmax())
    head = int(differs[:, position].int().argmax())
    return DivergencePoint(path.stack, path.layer, path.part, step, head, position)


def _max_relative_error(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[float, int]:
    """Return the largest error of several (actual, expected) pairs, and the index of that pair."""
    errors = [
        float(relative_error(actual, expected).max())
        if actual.shape == expected.shape and actual.numel()
        else torch.inf
        for actual, expected in pairs
    ]
    worst = max(range(len(errors)), key=errors.__getitem__)
    return errors[worst], worst


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
    no_cache_reason = None
    if not model.is_encoder_decoder:
        try:
            model.new_state()
        except InvalidInput as error:
            no_cache_reason = error.message
    inputs = ProofInputs(model, sequences, reference, tolerance, no_cache_reason)
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
    "fused": lambda inputs: [_compare_fused(inputs)],
    "packed": lambda inputs: _compare_packed(inputs),
    "exported": lambda inputs: _check_copy(inputs, "exported = original", _EXPORTED, export_roundtrip),
    "saved": lambda inputs: _check_copy(inputs, "saved = original", _SAVED, _save_roundtrip),
}
"""Checks of a proof, in order."""


def _compare(
    inputs: ProofInputs, name: str, description: str, execution_path: ExecutionPath, other_model: Model | None = None
) -> Equality:
    other_model = inputs.model if other_model is None else other_model
    results, tolerance = execution_path(other_model, inputs.sequences, None), inputs.tolerance
    both = list(zip(results, inputs.reference, strict=True))
    pairs = [(actual.token_outputs, expected.token_outputs) for actual, expected in both]
    vectors = [(a.pooled, e.pooled) for a, e in both if a.pooled is not None and e.pooled is not None]
    distance, worst = _max_relative_error(pairs)
    vector_distance, vector_worst = _max_relative_error(vectors) if vectors else (0.0, 0)
    if max(distance, vector_distance) <= tolerance:
        return Equality(name, description, HOLDS, max(distance, vector_distance), tolerance)
    reason = "The token vectors agree, but the pooled vector does not." if distance <= tolerance else ""
    if reason:
        distance, worst = vector_distance, vector_worst
    divergence = _first_divergence(inputs.model, other_model, execution_path, inputs.sequences, worst, tolerance)
    if divergence is None and not reason:
        divergence = _divergence_of_logits(*pairs[worst], tolerance)
    return Equality(name, description, FAILS, distance, tolerance, reason, divergence, worst)


def _dtype(model: Model) -> torch.dtype:
    """Return the dtype of the model's weights; float32 for a model without weights."""
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32)


def export_roundtrip(model: Model) -> Model:
    """Return a copy through a Hugging Face folder; raises if no family supports the model."""
    return _roundtrip(
        model,
        lambda folder: huggingface.write_folder(folder, model.config, model.state_dict()),
        lambda folder: huggingface.load_model(huggingface.read_folder(folder)),
    )


def _save_roundtrip(model: Model) -> Model:
    """Return a copy through a peasy checkpoint."""
    return _roundtrip(
        model, lambda folder: save_model(folder, model), lambda folder: load_model(read_checkpoint(folder))
    )


def _roundtrip(model: Model, write: Callable[[Path], object], read: Callable[[Path], Model]) -> Model:
    """Run a round trip in a temporary folder; the mapped weights are copied before it is deleted."""
    with tempfile.TemporaryDirectory(prefix="peasy-", ignore_cleanup_errors=True) as folder:
        free = shutil.disk_usage(folder).free
        if free < 1.1 * model.weight_bytes():
            raise ResourceUnavailable(
                f"A copy needs {format_bytes(model.weight_bytes())} in {folder}; {format_bytes(free)} are free."
            )
        write(Path(folder) / "copy")
        reloaded = read(Path(folder) / "copy")
        reloaded.load_state_dict({name: tensor.clone() for name, tensor in reloaded.state_dict().items()}, assign=True)
    return reloaded.to(model.device)


_FUSED = "fused = formula"
_FUSED_DESCRIPTION = "the kernel's context against the formula's weights times the values, head by head"


class _KernelComparison(StepRecorder):
    """Recorder that compares at every attention layer; keeps the largest error and the first divergence."""

    def __init__(self, index: int, tolerance: float) -> None:
        super().__init__(index)
        self.tolerance, self.distance, self.num_compared = tolerance, 0.0, 0
        self.divergence: DivergencePoint | None = None
        self.captured: dict[str, Tensor] = {}

    def make_tap(
        self, row: int = 0, num_new_tokens: int | None = None, padding_masks: Mapping[str, Tensor | None] | None = None
    ) -> Tap:
        """Return a tap on the formula's inputs and the kernel's output."""
        self.captured = {}
        return Tap(self._record, steps=("value", "weights", "context"), parts=("attention", "cross_attention"))

    def _record(self, activation: Activation) -> None:
        self.captured[activation.step] = context = activation.array
        if activation.step != "context":
            return
        wide, path = torch.promote_types(context.dtype, torch.float32), activation.path
        expected = self.captured["weights"].to(wide) @ self.captured["value"].to(wide).nan_to_num(0.0)
        self.num_compared += 1
        self.distance = max(self.distance, float(relative_error(context, expected).max()))
        for row in range(len(context)):
            self.divergence = self.divergence or _divergence_of_step(
                path, "context", context[row], expected[row], self.tolerance
            )


def _compare_fused(inputs: ProofInputs) -> Equality:
    """Compare every attention layer on each sequence alone, in a padded batch, and in chunks if there is a cache."""
    modules = list(inputs.model.modules())
    attentions = [module for module in modules if isinstance(module, Attention)]
    if not attentions:
        additive = any(isinstance(module, AdditiveAttention) for module in modules)
        computed = "Its attention is computed by the formula: there is no fused kernel."
        return Equality(
            _FUSED, _FUSED_DESCRIPTION, NOT_APPLICABLE, reason=computed if additive else "It has no attention."
        )
    compared: list[ExecutionPath] = [paths.uncached, paths.padded_batch]
    compared += [paths.chunked] if any(attention.path.stack == "decoder" for attention in attentions) else []
    comparisons = []
    for path in compared:
        for index in range(len(inputs.sequences)):
            comparisons.append(_KernelComparison(index, inputs.tolerance))
            path(inputs.model, inputs.sequences, comparisons[-1])
    worst = max(comparisons, key=lambda comparison: comparison.distance)
    if worst.distance <= inputs.tolerance:
        metrics = {"num_compared": sum(comparison.num_compared for comparison in comparisons)}
        return Equality(_FUSED, _FUSED_DESCRIPTION, HOLDS, worst.distance, inputs.tolerance, metrics=metrics)
    where = worst.divergence, worst.index
    return Equality(_FUSED, _FUSED_DESCRIPTION, FAILS, worst.distance, inputs.tolerance, "", *where)


_PackedDtype = Literal["float32", "int8"]
_PACKED_EQUALITIES: dict[_PackedDtype, tuple[str, str]] = {
    "float32": ("packed float32 = full", "the same float32 weights, packed for this processor"),
    "int8": ("packed int8 ≈ full", "int8 weights, and int8 activations quantised per row"),
}


def _compare_packed(inputs: ProofInputs) -> Iterator[Equality]:
    """Compare each packing with the full-precision model, and check its batch invariance."""
    for dtype, (name, description) in _PACKED_EQUALITIES.items():
        try:
            packed = _pack(inputs.model, dtype)
        except PeasyError as error:
            yield Equality(name, description, NOT_APPLICABLE, reason=error.message)
            continue
        yield _compare_logits(inputs, packed, dtype, name, description)
        yield compare_batch_invariance(f"batch invariant, {dtype}", packed, inputs.sequences, inputs.no_cache_reason)


def _pack(model: Model, dtype: _PackedDtype) -> Model:
    if not any(isinstance(module, nn.Linear | LMHead) for module in model.modules()):
        raise InvalidInput("It has no linear layers to pack.")
    if model.device.type != "cpu":
        raise InvalidInput("Packing is only for the CPU, and this model is on another device.")
    return pack(model, dtype, deterministic=True)


def _compare_logits(inputs: ProofInputs, packed: Model, dtype: _PackedDtype, name: str, description: str) -> Equality:
    actual = [result.token_outputs for result in paths.uncached(packed, inputs.sequences)]
    expected = [result.token_outputs for result in inputs.reference]
    metrics = _logit_metrics(torch.cat(actual), torch.cat(expected))
    exact = dtype == "float32"
    allowed, distance = (inputs.tolerance, metrics["max_error"]) if exact else (_INT8_TOLERANCE, metrics["rms_error"])
    if distance <= allowed:
        return Equality(name, description, HOLDS, distance, allowed, metrics=metrics)
    _, worst = _max_relative_error(list(zip(actual, expected, strict=True)))
    divergence = _first_divergence(inputs.model, packed, paths.uncached, inputs.sequences, worst, allowed)
    divergence = divergence or _divergence_of_logits(actual[worst], expected[worst], allowed)
    return Equality(name, description, FAILS, distance, allowed, "", divergence, worst, metrics)


def _logit_metrics(actual: Tensor, expected: Tensor) -> dict[str, float]:
    """Return error metrics of logits `[token, vocab]`: relative errors, KL divergence, top-1 agreement."""
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
    expected = [paths.varlen_logits(model, [sequence], 0)[0] for sequence in sequences]
    num_differing, worst = 0, None
    indices = list(range(len(sequences)))
    orders = [(indices, 0), (indices[::-1], 1), (indices[:1], 3)]  # with the number of tokens in the first chunk
    orders += [([second, first], 2) for first, second in pairwise(indices)]
    for order, first_chunk in orders:
        batch_logits = paths.varlen_logits(model, [sequences[index] for index in order], first_chunk)
        for index, logits in zip(order, batch_logits, strict=True):
            different = int((logits != expected[index]).sum())
            worst = index if different and worst is None else worst
            num_differing += different
    metrics = {"num_differing": float(num_differing)}
    if not num_differing:
        return Equality(name, description, HOLDS, 0.0, 0.0, metrics=metrics)
    return Equality(name, description, FAILS, None, 0.0, f"{num_differing:,} logits differ.", None, worst, metrics)
