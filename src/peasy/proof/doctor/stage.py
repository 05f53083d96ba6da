"""Checks after the formula is identified: masks, fully masked rows, causal flag, lengths, grouped-query attention."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from peasy.proof.doctor import frame as sizes
from peasy.proof.doctor.cached import has_cache, study_cache
from peasy.proof.doctor.chart import Chart
from peasy.proof.doctor.frame import KEY_HEADS, Form, forms
from peasy.proof.doctor.mistake import CACHED, MISTAKES, NAN_ROWS, TOP_LEFT
from peasy.proof.doctor.role import declares
from peasy.proof.doctor.search import Observation, agrees, explain, first_difference
from peasy.proof.doctor.stance import Question, Stance
from peasy.proof.doctor.variant import Variant

MASKING = [mistake for mistake in MISTAKES if any("masking" in changes for changes in mistake.ways)]
CAUSAL = [
    mistake for mistake in MISTAKES if any({"causal", "ahead", "masking"} & set(changes) for changes in mistake.ways)
]
LENGTH = sizes.QUERIES

Study = Callable[[Chart, Stance, Form | None, Variant], None]


def study_masks(chart: Chart, stance: Stance, needed: Form | None, variant: Variant) -> None:
    """Check the effect of masks in the accepted convention, and fully masked rows."""
    for role in ("mask", "padding"):
        if chart.way.has(role):
            _study_mask(chart, stance, variant, role)


def _study_mask(chart: Chart, stance: Stance, variant: Variant, role: str) -> None:
    mask = stance.numbers.mask(stance.frame.batch, LENGTH, LENGTH)
    declared = declares(chart.description, chart.way.called(role))
    tried: list[tuple[Form, Observation]] = []
    for form in forms(stance.frame, role, declared):
        result = stance.ask(Question(LENGTH, LENGTH, mask, form, role))
        tried += [(form, result)] if isinstance(result, Observation) else []
    for count in (0, 1):
        for form, observation in tried:
            match = explain([observation], [variant], MASKING, [count])
            if match is not None:
                chart.checked.append("a mask" if role == "mask" else "a padding mask")
                chart.conventions.append(form.says if role == "mask" else form.says.replace("mask", "padding", 1))
                chart.blame(match.mistakes, first_difference(observation, variant))
                _study_empty_rows(chart, stance, form, match.variant, role)
                return
    if tried:
        chart.explained = False
        chart.notes.append("No known mistake explains its outputs with a mask.")
        chart.difference = chart.difference or first_difference(tried[0][1], variant)
    else:
        chart.notes.append("No known mask convention was accepted.")


def _study_empty_rows(chart: Chart, stance: Stance, form: Form, variant: Variant, role: str) -> None:
    mask = stance.numbers.mask(stance.frame.batch, LENGTH, LENGTH)
    if "q" in form.shape:
        mask[:, :, 1] = False
    else:
        mask[-1:] = False
    result = stance.ask(Question(LENGTH, LENGTH, mask, form, role))
    if not isinstance(result, Observation) or variant.masking != "before":
        return
    empty = ~np.isfinite(result.predict(variant))
    if empty.any() and np.isnan(result.found[empty]).any():
        chart.blame([NAN_ROWS])
    elif empty.any():
        chart.conventions.append("fully masked rows give finite values, not NaN")


def study_causal(chart: Chart, stance: Stance, needed: Form | None, variant: Variant) -> None:
    """Check the causal flag."""
    if not chart.way.has("causal"):
        return
    result = stance.ask(_open(stance, Question(LENGTH, LENGTH, causal=True), needed))
    if not isinstance(result, Observation):
        return
    base = replace(variant, causal=0)
    match = explain([result], [base], CAUSAL)
    if match is None:
        chart.explained = False
        chart.notes.append("No known mistake explains its outputs with the causal flag.")
        return
    chart.checked.append("the causal flag")
    chart.conventions.append(f"{chart.way.called('causal')[0]}=True is causal")
    chart.blame(match.mistakes, first_difference(result, base))


def study_lengths(chart: Chart, stance: Stance, needed: Form | None, variant: Variant) -> None:
    """Check fewer queries than keys, and the alignment of the causal mask in that case."""
    if not (chart.way.has("query", "key") or chart.way.has("source")):
        return
    flag = chart.way.has("causal")
    base = replace(variant, causal=0) if flag else variant
    result = stance.ask(_open(stance, Question(3, sizes.KEYS, causal=flag), needed))
    if not isinstance(result, Observation):
        chart.conventions.append("as many queries as keys")
        return
    chart.checked.append("more keys than queries")
    if agrees(result, base):
        return
    if base.causal is not None and agrees(result, replace(base, corner="start")):
        mistake = CACHED[0] if has_cache(chart.way) else TOP_LEFT
        chart.blame([mistake], first_difference(result, base))
    elif not chart.findings:
        chart.explained = False
        chart.notes.append("No known mistake explains its outputs with more keys than queries.")
        chart.difference = first_difference(result, base)


def study_groups(chart: Chart, stance: Stance, needed: Form | None, variant: Variant) -> None:
    """Check grouped-query attention: fewer key/value heads than query heads, if accepted."""
    if stance.projection is not None or stance.frame.heads == 1:
        return
    result = stance.ask(_open(stance, Question(LENGTH, LENGTH, grouped=True), needed))
    if not isinstance(result, Observation):
        return
    if agrees(result, variant):
        chart.conventions.append("grouped-query attention: adjacent query heads share a key/value head")
        chart.checked.append(f"{stance.frame.heads} query heads, {KEY_HEADS} key/value heads")
    elif agrees(result, replace(variant, groups="tile")):
        tiled = [mistake for mistake in MISTAKES if mistake.ways == [{"groups": "tile"}]]
        chart.blame(tiled, first_difference(result, variant))


def _open(stance: Stance, question: Question, form: Form | None) -> Question:
    """Return the call with an all-True mask if the target requires a mask."""
    if form is None:
        return question
    mask = np.ones((stance.frame.batch, 1, question.queries, question.keys), dtype=bool)
    return replace(question, mask=mask, form=form)


STAGES: tuple[Study, ...] = (study_masks, study_causal, study_lengths, study_groups, study_cache)
