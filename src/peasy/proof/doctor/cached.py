"""A text read in two pieces: does the second one know of the first, and where it stands?"""

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
    """Whether its signature reveals a cache."""
    return any(way.has(role) for role in ("cache", "past_key", "offset"))


def study_cache(chart: Chart, stance: Stance, needed: Form | None, variant: Variant) -> None:
    """The second piece after the first, against the formula on the whole text."""
    if not has_cache(chart.way) or needed is not None:
        return
    flag = chart.way.has("causal")
    variant = replace(variant, causal=0) if flag else variant
    question = Question(WHOLE, WHOLE, causal=flag)
    seen = [each for each in _second_pieces(stance, question) if isinstance(each, Observation)]
    if not seen:
        chart.notes.append("How its cache is to be given could not be told from its signature.")
        return
    chart.checked.append("a text in two pieces, with its cache")
    if any(agrees(each, variant) for each in seen):
        return
    top_left, unshifted, unused = CACHED
    for mistake in (top_left, unshifted):
        for each in seen:
            if any(agrees(each, changed) for changed in mistake.applied(variant)):
                chart.blame([mistake], first_difference(each, variant))
                return
    if any(agrees(replace(each, case=_without_past(each.case)), changed)
           for each in seen for changed in (variant, replace(variant, shifted=False))):  # fmt: skip
        chart.blame([unused], first_difference(seen[0], variant))
        return
    chart.explained = False
    chart.notes.append("In two pieces with its cache it gives something that no known mistake gives.")
    chart.difference = chart.difference or first_difference(seen[0], variant)


def _second_pieces(stance: Stance, question: Question) -> Iterator[Observation | None]:
    """Every way to give the cache that works."""
    arrays, case = stance.lay_out(question)
    case = replace(case, query=case.query[..., FIRST:, :], past=FIRST)
    plain = stance.plain(question)
    first = {role: stance.frame.lay(array[..., :FIRST, :]) for role, array in arrays.items()}
    second = {role: stance.frame.lay(array[..., FIRST:, :]) for role, array in arrays.items()}
    offset = {"offset": FIRST} if stance.way.has("offset") else {}
    if stance.way.has("past_key", "past_value"):
        for past in _pasts(stance, case):
            yield stance.read(case, stance.call(plain | second | offset | past))
        return
    start = {"offset": 0} if stance.way.has("offset") else {}
    begun = stance.call(plain | first | start | ({"use_cache": True} if stance.way.has("use_cache") else {}))
    if begun.fault is not None:
        return
    if not stance.way.has("cache"):
        yield stance.read(case, stance.call(plain | second | offset))
        return
    for kept in _kept(begun):
        yield stance.read(case, stance.call(plain | second | offset | {"cache": kept}))


def _pasts(stance: Stance, case: Case) -> Iterator[dict[str, Any]]:
    """Cached keys as they were, or already turned to their places."""
    key, value = case.key[..., :FIRST, :], case.value[..., :FIRST, :]
    places = np.arange(FIRST)
    for keys in (key, turn(key, places, "halves"), turn(key, places, "pairs")):
        yield {"past_key": stance.frame.lay(keys), "past_value": stance.frame.lay(value)}


def _kept(answer: Answer) -> Iterator[Earlier]:
    """What of a result may be the cache: a thing that is no array, else the last array."""
    for path in sorted(answer.objects, key=len):
        yield Earlier(answer.call, path)
    for path in sorted(answer.arrays, key=len)[1:]:
        yield Earlier(answer.call, path)


def _without_past(case: Case) -> Case:
    return replace(case, key=case.key[..., FIRST:, :], value=case.value[..., FIRST:, :], past=0)
