"""Equalities of a model: each compares an execution path with the uncached reference and locates the divergence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from peasy.errors import InvalidInput, PeasyError
from peasy.models.protocol import Model
from peasy.proof import road as roads
from peasy.proof.copy import export_again, save_again
from peasy.proof.kernel import compare_kernels
from peasy.proof.parting import furthest, of_scores, part_ways
from peasy.proof.road import Outcome, Road, Text
from peasy.proof.thrift import compare_packed
from peasy.proof.tolerance import tolerance_of
from peasy.proof.verdict import ABSENT, FAILS, HOLDS, Equality, Proof

Progress = Callable[[int, int], None]
"""Callback with the number of finished checks and their total."""


@dataclass(frozen=True, eq=False)
class Question:
    """Common inputs of all checks: the model, its sequences, their reference outputs, and the tolerance."""

    model: Model
    texts: Sequence[Text]
    plain: list[Outcome]
    tolerance: float


def prove_model(
    model: Model,
    texts: Sequence[Text],
    *,
    name: str = "model",
    notes: Sequence[str] = (),
    progress: Progress | None = None,
) -> Proof:
    """Check every equality of a model on these sequences.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> proof = prove_model(build(preset("gpt-tiny"), seed=1), [Text((1, 2, 3, 4)), Text((5, 6))])
    >>> proof.passed, proof["cached = uncached"].verdict
    (True, 'holds')
    """
    if not texts or not all(text.ids for text in texts):
        raise InvalidInput("There are no tokens to check.", hint="Give at least one text; none may be empty.")
    training = model.training
    try:
        with torch.inference_mode():
            model.eval()
            equalities = tuple(_tried(model, texts, progress))
    finally:
        model.train(training)
    tokens = sum(len(text.ids) for text in texts)
    return Proof(name, model.config.kind, _numbers(model), len(texts), tokens, equalities, tuple(notes))


def _tried(model: Model, texts: Sequence[Text], progress: Progress | None) -> Iterator[Equality]:
    inputs = Question(model, texts, roads.alone(model, texts), tolerance_of(_dtype(model)))
    checks: list[Callable[[Question], list[Equality]]] = [
        _cached, _batched, _padded, _chunked, _fused, _packed, _exported, _saved,
    ]  # fmt: skip
    for done, check in enumerate(checks):
        if progress is not None:
            progress(done, len(checks))
        yield from check(inputs)
    if progress is not None:
        progress(len(checks), len(checks))


def _cached(question: Question) -> list[Equality]:
    description = "half of the sequence as a prompt, then one token at a time with the KV cache"
    return [_with_memory(question, "cached = uncached", description, roads.cached)]


def _chunked(question: Question) -> list[Equality]:
    description = "in chunks of 1, 2, 3, 5, ... tokens with the KV cache"
    return [_with_memory(question, "whole = in chunks", description, roads.in_chunks)]


def _batched(question: Question) -> list[Equality]:
    name = "alone = in a batch"
    if _memory_reason(question.model) is None:
        description = "all sequences in one batch, each with its own KV cache"
        return [_compare(question, name, description, roads.side_by_side)]
    return [_compare(question, name, "all sequences in one padded batch", roads.in_a_batch)]


def _padded(question: Question) -> list[Equality]:
    description = f"{roads.PADS} padding tokens before or after a sequence"
    results = [_compare(question, "padded = unpadded", description, roads.padded(side)) for side in ("left", "right")]
    results += [_compare(question, "padded = unpadded", description, roads.in_a_batch)]
    return [max(results, key=lambda result: (result.verdict == FAILS, result.distance or 0.0))]


def _fused(question: Question) -> list[Equality]:
    return [compare_kernels(question.model, question.texts, question.tolerance)]


def _packed(question: Question) -> list[Equality]:
    reason = _memory_reason(question.model)
    return compare_packed(question.model, question.texts, question.plain, question.tolerance, reason)


def _exported(question: Question) -> list[Equality]:
    description = "exported to the Hugging Face format and loaded again"
    return [_again(question, "exported = original", description, export_again)]


def _saved(question: Question) -> list[Equality]:
    return [_again(question, "saved = original", "saved as a peasy checkpoint and loaded again", save_again)]


def _again(question: Question, name: str, says: str, copy: Callable[[Model], Model]) -> Equality:
    try:
        reloaded = copy(question.model)
    except PeasyError as error:
        return Equality(name, says, ABSENT, why=" ".join(filter(None, [error.message, error.hint])))
    return _compare(question, name, says, roads.alone, reloaded)


def _with_memory(question: Question, name: str, says: str, road: Road) -> Equality:
    reason = _memory_reason(question.model)
    return Equality(name, says, ABSENT, why=reason) if reason else _compare(question, name, says, road)


def _memory_reason(model: Model) -> str | None:
    """Return why the model has no KV cache, or None if it has one."""
    if model.reads_source:
        return None
    try:
        model.start()
    except InvalidInput as error:
        return error.message
    return None


def _compare(question: Question, name: str, says: str, road: Road, other: Model | None = None) -> Equality:
    other = question.model if other is None else other
    results, tolerance = road(other, question.texts, None), question.tolerance
    pairs = [(actual.rows, expected.rows) for actual, expected in zip(results, question.plain, strict=True)]
    distance, worst = furthest(pairs)
    vectors = [
        (actual.vector, expected.vector)
        for actual, expected in zip(results, question.plain, strict=True)
        if actual.vector is not None and expected.vector is not None
    ]
    vector_distance, vector_worst = furthest(vectors) if vectors else (0.0, 0)
    if max(distance, vector_distance) <= tolerance:
        return Equality(name, says, HOLDS, max(distance, vector_distance), tolerance)
    why = ""
    if distance <= tolerance:
        distance, worst, why = (
            vector_distance,
            vector_worst,
            "The token vectors agree, but the pooled vector does not.",
        )
    where = part_ways(question.model, other, road, question.texts, worst, tolerance)
    if where is None and not why:
        where = of_scores(*pairs[worst], tolerance)
    return Equality(name, says, FAILS, distance, tolerance, why, where, worst)


def _dtype(model: Model) -> torch.dtype:
    """Return the dtype of the model's weights; float32 for a model without weights."""
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32)


def _numbers(model: Model) -> str:
    return str(_dtype(model)).removeprefix("torch.")
