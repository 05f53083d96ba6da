"""Further studies of a patient whose formula is known: masks, lengths, empty rows, shared heads."""

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

MASKING = [each for each in MISTAKES if any("masking" in way for way in each.ways)]
CAUSAL = [each for each in MISTAKES if any({"causal", "ahead", "masking"} & set(way) for way in each.ways)]
LENGTH = sizes.QUERIES

Study = Callable[[Chart, Stance, Form | None, Variant], None]


def study_masks(chart: Chart, stance: Stance, needed: Form | None, variant: Variant) -> None:
    """What a mask does, in whichever form it is taken; and what a row gets that may look at nothing."""
    for role in ("mask", "padding"):
        if chart.way.has(role):
            _study_mask(chart, stance, variant, role)


def _study_mask(chart: Chart, stance: Stance, variant: Variant, role: str) -> None:
    mask = stance.numbers.mask(stance.frame.batch, LENGTH, LENGTH)
    declared = declares(chart.description, chart.way.called(role))
    tried: list[tuple[Form, Observation]] = []
    for form in forms(stance.frame, role, declared):
        seen = stance.ask(Question(LENGTH, LENGTH, mask, form, role))
        tried += [(form, seen)] if isinstance(seen, Observation) else []
    for count in (0, 1):
        for form, seen in tried:
            found = explain([seen], [variant], MASKING, [count])
            if found is not None:
                chart.checked.append("a mask" if role == "mask" else "a mask of padding")
                chart.conventions.append(form.says if role == "mask" else form.says.replace("mask", "padding", 1))
                chart.blame(found.mistakes, first_difference(seen, variant))
                _study_empty_rows(chart, stance, form, found.variant, role)
                return
    if tried:
        chart.explained = False
        chart.notes.append("With a mask it gives something that no known mistake gives.")
        chart.difference = chart.difference or first_difference(tried[0][1], variant)
    else:
        chart.notes.append("No form of a mask that the doctor knows was accepted.")


def _study_empty_rows(chart: Chart, stance: Stance, form: Form, variant: Variant, role: str) -> None:
    mask = stance.numbers.mask(stance.frame.batch, LENGTH, LENGTH)
    if "q" in form.shape:
        mask[:, :, 1] = False
    else:
        mask[-1:] = False
    seen = stance.ask(Question(LENGTH, LENGTH, mask, form, role))
    if not isinstance(seen, Observation) or variant.masking != "before":
        return
    empty = ~np.isfinite(seen.predict(variant))
    if empty.any() and np.isnan(seen.found[empty]).any():
        chart.blame([NAN_ROWS])
    elif empty.any():
        chart.conventions.append("a query that may look at nothing gets numbers, not NaN")


def study_causal(chart: Chart, stance: Stance, needed: Form | None, variant: Variant) -> None:
    """What it does when told to look back only."""
    if not chart.way.has("causal"):
        return
    seen = stance.ask(_open(stance, Question(LENGTH, LENGTH, causal=True), needed))
    if not isinstance(seen, Observation):
        return
    base = replace(variant, causal=0)
    found = explain([seen], [base], CAUSAL)
    if found is None:
        chart.explained = False
        chart.notes.append("Told to look back only, it gives something that no known mistake gives.")
        return
    chart.checked.append("looking back only")
    chart.conventions.append(f"{chart.way.called('causal')[0]}=True looks back only")
    chart.blame(found.mistakes, first_difference(seen, base))


def study_lengths(chart: Chart, stance: Stance, needed: Form | None, variant: Variant) -> None:
    """Fewer queries than keys: allowed? And if it looks back only, from the end or from the start?"""
    if not (chart.way.has("query", "key") or chart.way.has("source")):
        return
    flag = chart.way.has("causal")
    base = replace(variant, causal=0) if flag else variant
    seen = stance.ask(_open(stance, Question(3, sizes.KEYS, causal=flag), needed))
    if not isinstance(seen, Observation):
        chart.conventions.append("as many queries as keys")
        return
    chart.checked.append("more keys than queries")
    if agrees(seen, base):
        return
    if base.causal is not None and agrees(seen, replace(base, corner="start")):
        blamed = CACHED[0] if has_cache(chart.way) else TOP_LEFT
        chart.blame([blamed], first_difference(seen, base))
    elif not chart.findings:
        chart.explained = False
        chart.notes.append("With more keys than queries it gives something that no known mistake gives.")
        chart.difference = first_difference(seen, base)


def study_groups(chart: Chart, stance: Stance, needed: Form | None, variant: Variant) -> None:
    """Fewer key heads than query heads, where it takes them."""
    if stance.projection is not None or stance.frame.heads == 1:
        return
    seen = stance.ask(_open(stance, Question(LENGTH, LENGTH, grouped=True), needed))
    if not isinstance(seen, Observation):
        return
    if agrees(seen, variant):
        chart.conventions.append("heads may share keys: neighbours share one")
        chart.checked.append(f"{stance.frame.heads} heads sharing {KEY_HEADS}")
    elif agrees(seen, replace(variant, groups="tile")):
        chart.blame([each for each in MISTAKES if each.ways == [{"groups": "tile"}]], first_difference(seen, variant))


def _open(stance: Stance, question: Question, form: Form | None) -> Question:
    """The question with a mask that hides nothing, where a patient insists on one."""
    if form is None:
        return question
    mask = np.ones((stance.frame.batch, 1, question.queries, question.keys), dtype=bool)
    return replace(question, mask=mask, form=form)


STAGES: tuple[Study, ...] = (study_masks, study_causal, study_lengths, study_groups, study_cache)
