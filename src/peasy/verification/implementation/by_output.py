"""Comparison by outputs only, for functions of q, k and v whose operations cannot be recorded (loops over numbers)."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from peasy.formula.attention import attend
from peasy.formula.normalise import NORMALISATIONS, Normalisation, softmax
from peasy.formula.step import Namespace
from peasy.verification.implementation.core import Array
from peasy.verification.implementation.forms import Attempt
from peasy.verification.implementation.judgement import Judgement

_SCALES = {"": -0.5, "no scale": 0.0, "scale by d_k": -1.0, "scale multiplied": 0.5}


def _softmax_over_queries(xp: Namespace, masked: Array) -> Array:
    return np.swapaxes(softmax(xp, np.swapaxes(masked, -1, -2)), -1, -2)


_NORMALISATIONS = {
    "": NORMALISATIONS["softmax"],
    "softmax over queries": Normalisation("columns", "%s", "Softmax of each column.", _softmax_over_queries),
}


def judge_by_output(attempt: Attempt, found: Judgement) -> bool:
    """Compare the result with the formula and with known mistakes of it; False if q, k and v are not its inputs."""
    by_role = {role: name for name, role in attempt.roles.items()}
    subject = attempt.subject
    if not {"query", "key", "value"} <= set(by_role):
        return False
    arrays = subject.plain()
    q, k, v = (subject.inputs[by_role[role]].astype(np.float64) for role in ("query", "key", "value"))
    if q.shape[-1:] != k.shape[-1:] or k.shape[:-1] != v.shape[:-1] or q.ndim != k.ndim or q.ndim < 2:
        return False
    for names, causal, context in _variants(q, k, v):
        for array in arrays:
            if array.shape != context.shape:
                continue
            difference = float(np.abs(array - context).max())
            if difference <= 2e-4 * max(1.0, float(np.abs(context).max())):
                for name in names:
                    found.mistake(name)
                found.compared += not names
                found.difference = max(found.difference, difference)
                found.convention("always causal" if causal else "bidirectional")
                found.convention("compared by its output only: its operations cannot be recorded")
                return True
    return False


def _variants(q: Array, k: Array, v: Array) -> Iterator[tuple[list[str], bool, Array]]:
    """Yield results of the formula with at most two known mistakes: their names, whether it is causal, the context."""
    swaps = {"": (q, k, v)}
    if v.shape == k.shape:
        swaps["keys and values swapped"] = q, v, k
    if q.shape == k.shape:
        swaps["KQᵀ instead of QKᵀ"] = k, q, v
    rows = []
    for (scale, power), over, (swap, arrays), causal in product(
        _SCALES.items(), _NORMALISATIONS, swaps.items(), (False, True)
    ):
        names = [name for name in (swap, scale, over) if name]
        rows.append((len(names), names, power, over, arrays, causal))
    for count, names, power, over, (a, b, c), causal in sorted(rows, key=lambda row: row[0]):
        if count > 2:
            continue
        steps = attend(a, b, c, scale=float(q.shape[-1] ** power), causal=causal, normalise=_NORMALISATIONS[over])
        yield names, causal, np.asarray(steps.context)
