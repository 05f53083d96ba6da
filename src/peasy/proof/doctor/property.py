"""Dependence test for modules with unknown weight names: which input tokens change which outputs."""

from collections.abc import Callable, Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.proof.doctor import frame as sizes
from peasy.proof.doctor.chart import Chart
from peasy.proof.doctor.frame import FLAT, Frame, Numbers
from peasy.proof.doctor.mistake import DROPOUT, MISTAKES
from peasy.proof.doctor.subject import Patient
from peasy.proof.doctor.variant import Array

NAMED = {mistake.name: mistake for mistake in MISTAKES}
TIME = sizes.QUERIES


def study_properties(chart: Chart, patient: Patient, numbers: Numbers, widths: Sequence[int]) -> None:
    """Check determinism, independence of sequences in a batch, and the attention pattern, for one of these `widths`."""
    runner = next((runner for width in widths if (runner := _runner(chart, patient, numbers, width))), None)
    if runner is None:
        raise InvalidInput(
            f"{chart.way.says()} did not work with one input of shape (batch, time, width).",
            hint=f'Give the call: --call "{chart.way.name}({sizes.MODEL}, {sizes.HEADS})(x)"',
        )
    run, frame, x = runner
    first, second = run(x), run(x)
    chart.checked.append("the same input twice")
    if not np.array_equal(first, second, equal_nan=True):
        chart.blame([DROPOUT])
        return
    _study_sight(chart, run, x, first, frame)


def _study_sight(chart: Chart, run: Callable[[Array], Array], x: Array, before: Array, frame: Frame) -> None:
    pattern = np.zeros((TIME, TIME), dtype=bool)
    independent = True
    for token in range(TIME):
        changed = x.copy()
        changed[0, token] += 1.0
        moved = np.abs(run(changed) - before).max(axis=-1) > 1e-6
        pattern[:, token] = moved[0]
        independent = independent and not moved[1:].any()
    chart.checked.append("which tokens attend to which")
    if not independent:
        chart.blame([NAMED["heads split by a wrong reshape"]])
        return
    mistake = _judge(pattern)
    if mistake:
        chart.blame([NAMED[mistake]])
    elif pattern.all():
        chart.conventions.append("bidirectional")
    elif (pattern == np.tril(np.ones_like(pattern))).all():
        chart.conventions.append("always causal")
    else:
        chart.explained = False
        chart.notes.append("The attention pattern is neither bidirectional nor causal.")


def _judge(seen: Array) -> str | None:
    """Return the name of the mistake that an attention pattern `[query, key]` shows, or None."""
    ones = np.ones_like(seen)
    patterns = {
        "causal sees the next token": np.tril(ones, 1),
        "causal misses itself": np.tril(ones, -1),
        "mask inverted": np.triu(ones),
    }
    names = [name for name, pattern in patterns.items() if (seen == pattern).all()]
    return names[0] if names else "mask inverted" if (seen == np.triu(ones, 1)).all() else None


def _runner(
    chart: Chart, patient: Patient, numbers: Numbers, width: int
) -> tuple[Callable[[Array], Array], Frame, Array] | None:
    """Return a function from `[batch, time, width]` to the same, its layout (the first that works), and an input."""
    for axes in FLAT:
        frame = Frame(axes, True)

        def run(x: Array, frame: Frame = frame) -> Array:
            given = frame.lay(x)
            bound = chart.way.bind(dict.fromkeys(("x", "query", "key", "value", "source"), given) | {"causal": True})
            result = None if bound is None else patient.call(*bound)
            if result is None or result.fault is not None:
                raise ValueError
            output = next((array for array in result.arrays.values() if array.shape[:-1] == given.shape[:-1]), None)
            if output is None:
                raise ValueError
            return {"tbd": output.swapaxes(0, 1), "td": output[None]}.get(frame.axes, output)

        x = numbers.array("x", frame.batch, TIME, width)
        try:
            run(x)
        except ValueError:
            continue
        return run, frame, x
    return None
