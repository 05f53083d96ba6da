"""The equalities of a model: each a plain road and another one, how far apart they come out, and where they part."""

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
"""Called with how much is done, and of how much."""


@dataclass(frozen=True, eq=False)
class Question:
    """What all equalities ask about: a model, its texts, what it makes of them on the plain road, how far is near."""

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
    """Try every equality on these texts.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> proof = prove_model(build(preset("gpt-tiny"), seed=1), [Text((1, 2, 3, 4)), Text((5, 6))])
    >>> proof.passed, proof["cached = uncached"].verdict
    (True, 'holds')
    """
    if not texts or not all(text.ids for text in texts):
        raise InvalidInput("There is no text to prove anything on.", hint="Give at least one token in every text.")
    training = model.training
    try:
        with torch.inference_mode():
            model.eval()
            found = tuple(_tried(model, texts, progress))
    finally:
        model.train(training)
    tokens = sum(len(text.ids) for text in texts)
    return Proof(name, model.config.kind, _numbers(model), len(texts), tokens, found, tuple(notes))


def _tried(model: Model, texts: Sequence[Text], progress: Progress | None) -> Iterator[Equality]:
    question = Question(model, texts, roads.alone(model, texts), tolerance_of(_dtype(model)))
    trials: list[Callable[[Question], list[Equality]]] = [
        _cached, _batched, _padded, _chunked, _fused, _packed, _exported, _saved,
    ]  # fmt: skip
    for done, trial in enumerate(trials):
        if progress is not None:
            progress(done, len(trials))
        yield from trial(question)
    if progress is not None:
        progress(len(trials), len(trials))


def _cached(question: Question) -> list[Equality]:
    says = "half of a text as a prompt, then one token at a time from the cache"
    return [_with_memory(question, "cached = uncached", says, roads.cached)]


def _chunked(question: Question) -> list[Equality]:
    says = "in pieces of 1, 2, 3, 5, ... tokens, each after the cache of those before"
    return [_with_memory(question, "whole = in chunks", says, roads.in_chunks)]


def _batched(question: Question) -> list[Equality]:
    name = "alone = in a batch"
    if _memory_reason(question.model) is None:
        says = "all texts side by side, each into its own memory"
        return [_compare(question, name, says, roads.side_by_side)]
    return [_compare(question, name, "all texts in one padded array", roads.in_a_batch)]


def _padded(question: Question) -> list[Equality]:
    says = f"{roads.PADS} padding tokens before or after a text"
    found = [_compare(question, "padded = unpadded", says, roads.padded(side)) for side in ("left", "right")]
    found += [_compare(question, "padded = unpadded", says, roads.in_a_batch)]
    return [max(found, key=lambda each: (each.verdict == FAILS, each.distance or 0.0))]


def _fused(question: Question) -> list[Equality]:
    return [compare_kernels(question.model, question.texts, question.tolerance)]


def _packed(question: Question) -> list[Equality]:
    reason = _memory_reason(question.model)
    return compare_packed(question.model, question.texts, question.plain, question.tolerance, reason)


def _exported(question: Question) -> list[Equality]:
    says = "written in the standard format of its family and loaded again"
    return [_again(question, "exported = original", says, export_again)]


def _saved(question: Question) -> list[Equality]:
    return [_again(question, "saved = original", "saved as peasy saves it and loaded again", save_again)]


def _again(question: Question, name: str, says: str, copy: Callable[[Model], Model]) -> Equality:
    try:
        again = copy(question.model)
    except PeasyError as error:
        return Equality(name, says, ABSENT, why=" ".join(filter(None, [error.message, error.hint])))
    return _compare(question, name, says, roads.alone, again)


def _with_memory(question: Question, name: str, says: str, road: Road) -> Equality:
    reason = _memory_reason(question.model)
    return Equality(name, says, ABSENT, why=reason) if reason else _compare(question, name, says, road)


def _memory_reason(model: Model) -> str | None:
    """Why a model has no memory, if it has none."""
    if model.reads_source:
        return None
    try:
        model.start()
    except InvalidInput as error:
        return error.message
    return None


def _compare(question: Question, name: str, says: str, road: Road, other: Model | None = None) -> Equality:
    other = question.model if other is None else other
    found, tolerance = road(other, question.texts, None), question.tolerance
    pairs = [(one.rows, right.rows) for one, right in zip(found, question.plain, strict=True)]
    distance, worst = furthest(pairs)
    vectors = [
        (one.vector, right.vector)
        for one, right in zip(found, question.plain, strict=True)
        if one.vector is not None and right.vector is not None
    ]
    vector_distance, vector_worst = furthest(vectors) if vectors else (0.0, 0)
    if max(distance, vector_distance) <= tolerance:
        return Equality(name, says, HOLDS, max(distance, vector_distance), tolerance)
    why = ""
    if distance <= tolerance:
        distance, worst, why = (
            vector_distance,
            vector_worst,
            "The vectors of its tokens agree; that of the text does not.",
        )
    where = part_ways(question.model, other, road, question.texts, worst, tolerance)
    if where is None and not why:
        where = of_scores(*pairs[worst], tolerance)
    return Equality(name, says, FAILS, distance, tolerance, why, where, worst)


def _dtype(model: Model) -> torch.dtype:
    """The numbers it calculates with; one without weights counts in 32 bits."""
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32)


def _numbers(model: Model) -> str:
    return str(_dtype(model)).removeprefix("torch.")
