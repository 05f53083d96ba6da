"""What can be told of a patient whose weights nobody can read: which input tokens move which outputs."""

from collections.abc import Callable, Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.proof.doctor import frame as sizes
from peasy.proof.doctor.chart import Chart
from peasy.proof.doctor.frame import FLAT, Frame, Numbers
from peasy.proof.doctor.mistake import DROPOUT, MISTAKES
from peasy.proof.doctor.subject import Patient
from peasy.proof.doctor.variant import Array

NAMED = {each.name: each for each in MISTAKES}
TIME = sizes.QUERIES


def study_properties(chart: Chart, patient: Patient, numbers: Numbers, widths: Sequence[int]) -> None:
    """Is it the same twice, do texts of a batch stay apart, and who sees whom? Inputs have one of these `widths`."""
    found = next((each for width in widths if (each := _runner(chart, patient, numbers, width))), None)
    if found is None:
        raise InvalidInput(
            f"{chart.way.says()} did not work with one input of batch, time and width.",
            hint=f'Say how to call it: --call "{chart.way.name}({sizes.MODEL}, {sizes.HEADS})(x)"',
        )
    run, frame, x = found
    once, again = run(x), run(x)
    chart.checked.append("the same input twice")
    if not np.array_equal(once, again, equal_nan=True):
        chart.blame([DROPOUT])
        return
    _study_sight(chart, run, x, once, frame)


def _study_sight(chart: Chart, run: Callable[[Array], Array], x: Array, before: Array, frame: Frame) -> None:
    seen = np.zeros((TIME, TIME), dtype=bool)
    apart = True
    for token in range(TIME):
        changed = x.copy()
        changed[0, token] += 1.0
        moved = np.abs(run(changed) - before).max(axis=-1) > 1e-6
        seen[:, token] = moved[0]
        apart = apart and not moved[1:].any()
    chart.checked.append("which tokens see which")
    if not apart:
        chart.blame([NAMED["heads split by a wrong reshape"]])
        return
    blamed = _judge(seen)
    if blamed:
        chart.blame([NAMED[blamed]])
    elif seen.all():
        chart.conventions.append("looks both ways")
    elif (seen == np.tril(np.ones_like(seen))).all():
        chart.conventions.append("only looks back, without being told")
    else:
        chart.explained = False
        chart.notes.append("Which tokens see which is neither everybody, nor oneself and back.")


def _judge(seen: Array) -> str | None:
    """The mistake that a pattern of sight gives away, `[query, key]`."""
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
    """A function from `[batch, time, width]` to the same, in the first order of axes that works; and such an input."""
    for axes in FLAT:
        frame = Frame(axes, True)

        def run(x: Array, frame: Frame = frame) -> Array:
            laid = frame.lay(x)
            bound = chart.way.bind(dict.fromkeys(("x", "query", "key", "value", "source"), laid) | {"causal": True})
            answer = None if bound is None else patient.call(*bound)
            if answer is None or answer.fault is not None:
                raise ValueError
            found = next((array for array in answer.arrays.values() if array.shape[:-1] == laid.shape[:-1]), None)
            if found is None:
                raise ValueError
            return {"tbd": found.swapaxes(0, 1), "td": found[None]}.get(frame.axes, found)

        x = numbers.array("x", frame.batch, TIME, width)
        try:
            run(x)
        except ValueError:
            continue
        return run, frame, x
    return None
