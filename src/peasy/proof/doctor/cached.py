"""KV cache check: a sequence in two chunks must give the same as in one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from peasy.proof.doctor import frame as sizes
from peasy.proof.doctor.chart import Chart
from peasy.proof.doctor.frame import Form
from peasy.proof.doctor.mistake import CACHED
from peasy.proof.doctor.search import Observation, agrees, first_difference
from peasy.proof.doctor.stance import Question, Stance
from peasy.proof.doctor.subject import Answer, Earlier
from peasy.proof.doctor.variant import Case, Variant, turn
from peasy.proof.doctor.way import Way

WHOLE, FIRST = sizes.QUERIES, 3


def has_cache(way: Way) -> bool:
    """Return whether the signature has a cache."""
    return any(way.has(role) for role in ("cache", "past_key", "offset"))


def study_cache(chart: Chart, stance: Stance, needed: Form | None, variant: Variant) -> None:
    """Compare the second chunk, computed with the cache, with the formula on the whole sequence."""
    if not has_cache(chart.way) or needed is not None:
        return
    flag = chart.way.has("causal")
    variant = replace(variant, causal=0) if flag else variant
    spec = Question(WHOLE, WHOLE, causal=flag)
    observations = [result for result in _second_pieces(stance, spec) if isinstance(result, Observation)]
    if not observations:
        chart.notes.append("How to pass its cache could not be inferred from its signature.")
        return
    chart.checked.append("a sequence in two chunks, with its cache")
    if any(agrees(observation, variant) for observation in observations):
        return
    top_left, unshifted, unused = CACHED
    for mistake in (top_left, unshifted):
        for observation in observations:
            if any(agrees(observation, changed) for changed in mistake.applied(variant)):
                chart.blame([mistake], first_difference(observation, variant))
                return
    uncached = [replace(observation, case=_without_past(observation.case)) for observation in observations]
    variants = (variant, replace(variant, shifted=False))
    if any(agrees(observation, changed) for observation in uncached for changed in variants):
        chart.blame([unused], first_difference(observations[0], variant))
        return
    chart.explained = False
    chart.notes.append("No known mistake explains its outputs in two chunks with its cache.")
    chart.difference = chart.difference or first_difference(observations[0], variant)


def _second_pieces(stance: Stance, question: Question) -> Iterator[Observation | None]:
    """Yield the observation of the second chunk for every way to pass the cache that works."""
    arrays, inputs = stance.lay_out(question)
    inputs = replace(inputs, query=inputs.query[..., FIRST:, :], past=FIRST)
    scalars = stance.plain(question)
    first = {role: stance.frame.lay(array[..., :FIRST, :]) for role, array in arrays.items()}
    second = {role: stance.frame.lay(array[..., FIRST:, :]) for role, array in arrays.items()}
    offset = {"offset": FIRST} if stance.way.has("offset") else {}
    if stance.way.has("past_key", "past_value"):
        for past in _pasts(stance, inputs):
            yield stance.read(inputs, stance.call(scalars | second | offset | past))
        return
    start = {"offset": 0} if stance.way.has("offset") else {}
    prefill = stance.call(scalars | first | start | ({"use_cache": True} if stance.way.has("use_cache") else {}))
    if prefill.fault is not None:
        return
    if not stance.way.has("cache"):
        yield stance.read(inputs, stance.call(scalars | second | offset))
        return
    for cache in _kept(prefill):
        yield stance.read(inputs, stance.call(scalars | second | offset | {"cache": cache}))


def _pasts(stance: Stance, case: Case) -> Iterator[dict[str, Any]]:
    """Yield cached keys and values; keys without RoPE, or with RoPE already applied."""
    key, value = case.key[..., :FIRST, :], case.value[..., :FIRST, :]
    positions = np.arange(FIRST)
    for keys in (key, turn(key, positions, "halves"), turn(key, positions, "pairs")):
        yield {"past_key": stance.frame.lay(keys), "past_value": stance.frame.lay(value)}


def _kept(answer: Answer) -> Iterator[Earlier]:
    """Yield the parts of a result that may be the cache: other objects first, then arrays after the first."""
    for path in sorted(answer.objects, key=len):
        yield Earlier(answer.call, path)
    for path in sorted(answer.arrays, key=len)[1:]:
        yield Earlier(answer.call, path)


def _without_past(case: Case) -> Case:
    return replace(case, key=case.key[..., FIRST:, :], value=case.value[..., FIRST:, :], past=0)
