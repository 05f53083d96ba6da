"""Examination of an attention implementation: find a call layout that works, identify its formula, run the checks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from peasy.errors import InvalidInput
from peasy.proof.doctor import frame as sizes
from peasy.proof.doctor.chart import Chart
from peasy.proof.doctor.diagnosis import Diagnosis
from peasy.proof.doctor.frame import FLAT, FRAMES, Form, Frame, Numbers, forms
from peasy.proof.doctor.mistake import DROPOUT, MISTAKES
from peasy.proof.doctor.module import make_module, read_heads
from peasy.proof.doctor.property import study_properties
from peasy.proof.doctor.role import declares
from peasy.proof.doctor.search import Explanation, Observation, explain, first_difference
from peasy.proof.doctor.stage import STAGES
from peasy.proof.doctor.stance import Question, Stance
from peasy.proof.doctor.subject import Answer, Patient
from peasy.proof.doctor.variant import Variant
from peasy.proof.doctor.way import Way, way_of
from peasy.proof.doctor.weights import Linear, Projection, read_projections

BASES = [Variant(causal=causal, turn=turn) for turn in (None, "halves", "pairs") for causal in (None, 0)]
"""Conventions, not mistakes: bidirectional or causal, with or without rotary positions."""
SQUARE = Question(sizes.QUERIES, sizes.QUERIES)
SEEDS = 2
"""Number of seeded inputs that a variant must reproduce."""


def examine(patient: Patient, *, call: Way | None = None, seed: int = 0) -> Diagnosis:
    """Compare a function or module with the attention formula.

    >>> from peasy.proof.doctor.subject import Subject
    >>> def attention(q, k, v):
    ...     scores = q @ k.swapaxes(-1, -2)
    ...     weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    ...     return weights @ v
    >>> examine(Subject(attention)).mistakes
    ('no scale',)
    """
    description = patient.describe()
    name, kind = description.name, description.kind
    state: dict[str, np.ndarray] = {}
    if kind in ("class", "module"):
        description, state = make_module(patient, description, call, seed)
    chart = Chart(description, call or way_of(description))
    stances = list(_stances(patient, chart, state, Numbers(seed)))
    if not stances:
        chart.notes.append("Its weights could not be identified by name, so only the dependence test was run.")
        widths = dict.fromkeys([sizes.MODEL, *(array.shape[-1] for array in state.values() if array.ndim > 1)])
        study_properties(chart, patient, Numbers(seed), list(widths))
        return chart.close(name, kind)
    working = _working(stances, chart)
    match = _likeliest(working)
    if match is None:
        _unexplained(chart, working)
        return chart.close(name, kind)
    stance, form, explanation, observation = match
    _note(chart, stance, explanation, observation)
    for check in STAGES:
        check(chart, stance, form, explanation.variant)
    return chart.close(name, kind)


def _stances(patient: Patient, chart: Chart, state: dict[str, np.ndarray], numbers: Numbers) -> Iterator[Stance]:
    way, description = chart.way, chart.description
    libraries = [description.library] if description.library else ["torch", "numpy"]
    for library in ["torch"] if description.kind == "module" else libraries:
        base = Stance(patient, way, Frame("bhtd"), numbers, library, fixed=_fixed(way))
        if description.kind == "module":
            separate_inputs = way.has("query", "key", "value") or way.has("source")
            for projection in read_projections(state):
                if not separate_inputs and projection.key.weight.shape[0] != projection.width:
                    continue
                for heads, key_heads in read_heads(description, projection):
                    for axes in FLAT:
                        yield replace(
                            base, frame=Frame(axes, True), heads=heads, key_heads=key_heads, projection=projection
                        )
        elif way.has("query", "key", "value") and not way.has("w_q"):
            for axes in FLAT if way.has("heads") else ():
                yield replace(base, frame=Frame(axes, True))
            for axes in FRAMES:
                if "h" in axes or not way.has("heads"):
                    yield replace(base, frame=Frame(axes))
        elif way.has("x") or way.has("w_q"):
            yield from _weighted(base, numbers)
        else:
            raise InvalidInput(
                f"{description.name} does not look like attention: it takes neither q, k, v nor an input x.",
                hint='Give the call: --call "attention(q, k, v)"',
            )


def _weighted(plain: Stance, numbers: Numbers) -> Iterator[Stance]:
    """Yield the cases of a function of x: with projection matrices as arguments, or without projections."""
    heads, width = (sizes.HEADS, sizes.MODEL) if plain.way.has("heads") else (1, sizes.WIDTH)
    if plain.way.has("w_q"):
        scale = 1.5 / np.sqrt(width)  # so that the softmax is neither uniform nor one-hot
        q, k, v, o = (Linear(numbers.array(name, width, width) * scale) for name in ("w_q", "w_k", "w_v", "w_o"))
        projection = Projection(q, k, v, o if plain.way.has("w_o") else None, "its arguments")
    else:
        identity = Linear(np.eye(width))
        projection = Projection(identity, identity, identity, None, "none: queries, keys and values are the inputs")
    for turned in (False, True) if plain.way.has("w_q") else (False,):
        for axes in FLAT:
            yield replace(
                plain, frame=Frame(axes, True), heads=heads, key_heads=heads, projection=projection, turned=turned
            )


def _fixed(way: Way) -> dict[str, Any]:
    """Return values passed in every call: training=False, and required arguments that do not affect attention."""
    fixed: dict[str, Any] = {"training": False} if way.has("training") else {}
    required = {"dropout": 0.0, "offset": 0, "length": sizes.LENGTH, "cache": None, "past_key": None,
                "past_value": None, "flag": True, "weights": True, "scale": sizes.WIDTH**-0.5}  # fmt: skip
    return fixed | {role: value for role, value in required.items() if way.needs(role)}


Working = tuple[Stance, Form | None, list[Observation]]


def _working(stances: Sequence[Stance], chart: Chart) -> list[Working]:
    """Return the cases in which the target returns a context, with observations; disable dropout if it is random."""
    working: list[Working] = []
    failures: list[Answer] = []
    for stance in stances:
        stance = replace(stance, still=bool(chart.findings))
        for form in _needed_forms(stance, chart):
            spec = SQUARE if form is None else replace(SQUARE, mask=_open(stance), form=form)
            first, second = stance.ask(spec), stance.ask(spec)
            if isinstance(first, Answer) or isinstance(second, Answer):
                failures += [first] if isinstance(first, Answer) else []
                continue
            if not chart.findings and not np.array_equal(first.found, second.found, equal_nan=True):
                chart.blame([DROPOUT])
                stance = replace(stance, still=True)
            results = [replace(stance, numbers=Numbers(stance.numbers.seed + n)).ask(spec) for n in range(SEEDS)]
            observations = [result for result in results if isinstance(result, Observation)]
            if len(observations) == SEEDS:
                working.append((stance, form, observations))
    if not working:
        faults = [failure.fault for failure in failures if failure.fault]
        reason = next((fault.says() for fault in faults if fault.line), None)
        reason = reason or next((fault.says() for fault in faults), "it returned no array of the expected shape")
        raise InvalidInput(
            f"{chart.way.says()} did not work in any layout of its inputs: {reason}",
            hint=f'Give the call: --call "{chart.way.says()}"',
        )
    return working


def _needed_forms(stance: Stance, chart: Chart) -> list[Form] | list[None]:
    if not chart.way.needs("mask"):
        return [None]
    return list(forms(stance.frame, "mask", declares(chart.description, chart.way.called("mask"))))


def _open(stance: Stance) -> np.ndarray:
    return np.ones((stance.frame.batch, 1, SQUARE.queries, SQUARE.keys), dtype=bool)


def _likeliest(working: Sequence[Working]) -> tuple[Stance, Form | None, Explanation, Observation] | None:
    """Return the variant with the fewest mistakes over all working cases."""
    for count in range(3):
        for stance, form, observations in working:
            bases = BASES if stance.projection is not None else [base for base in BASES if base.turn is None]
            explanation = explain(observations, bases, MISTAKES, [count])
            if explanation is not None:
                return stance, form, explanation, observations[0]
    return None


def _note(chart: Chart, stance: Stance, explanation: Explanation, observation: Observation) -> None:
    variant = explanation.variant
    chart.checked.append(f"{SEEDS} seeded inputs")
    chart.conventions.append(stance.frame.says)
    if observation.case.merged:
        chart.conventions.append("returns concatenated heads: batch, time, width of all heads")
    if stance.projection is not None:
        chart.conventions.append(f"weights: {stance.projection.says}")
        if stance.heads > 1:
            chart.conventions.append(f"{stance.heads} heads" + _sharing(stance))
    if variant.causal is not None:
        chart.conventions.append("always causal")
    if variant.turn is not None:
        chart.conventions.append(f"rotary positions, by {variant.turn}")
    correct = Variant(causal=None if variant.causal is None else 0, turn=variant.turn)
    chart.blame(explanation.mistakes, first_difference(observation, correct))


def _sharing(stance: Stance) -> str:
    return f", {stance.key_heads} key/value heads" if stance.key_heads != stance.heads else ""


def _unexplained(chart: Chart, working: Sequence[Working]) -> None:
    stance, _, observations = working[0]
    chart.explained = False
    chart.conventions.append(stance.frame.says)
    chart.difference = first_difference(observations[0], Variant())
