"""Comparison by outputs only, for functions of q, k and v whose operations cannot be followed (loops)."""

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from peasy.errors import PeasyError
from peasy.formula.attention import attend
from peasy.formula.scoring import NORMALISATIONS, Normalisation, softmax
from peasy.formula.step import Namespace
from peasy.verification.implementation.core import Array
from peasy.verification.implementation.forms import Attempt
from peasy.verification.implementation.judgement import Judgement
from peasy.verification.implementation.masks import conventions, random_mask


def _softmax_over_queries(xp: Namespace, masked: Array) -> Array:
    return np.swapaxes(softmax(xp, np.swapaxes(masked, -1, -2)), -1, -2)


def _double_softmax(xp: Namespace, masked: Array) -> Array:
    return np.asarray(softmax(xp, softmax(xp, masked)))


_NORMALISATIONS = {
    "": NORMALISATIONS["softmax"],
    "softmax over queries": Normalisation("columns", "%s", "Softmax of each column.", _softmax_over_queries),
    "double softmax": Normalisation("twice", "%s", "Softmax of the softmax.", _double_softmax),
    "no softmax": NORMALISATIONS["none"],
    "sum instead of softmax": NORMALISATIONS["sum"],
}
_DIAGONALS = {"": 0, "causal mask off by one (future)": 1, "causal mask off by one (self)": -1}


def judge_by_output(attempt: Attempt, found: Judgement) -> bool:
    """Compare the result with the formula and with known mistakes of it; False if q, k and v are not its inputs.

    A causal flag is set, too: then only causal results count.
    """
    by_role = {role: name for name, role in attempt.roles.items()}
    subject = attempt.subject
    if not {"query", "key", "value"} <= set(by_role):
        return False
    q, k, v = (subject.inputs[by_role[role]].astype(np.float64) for role in ("query", "key", "value"))
    if q.shape[-1:] != k.shape[-1:] or k.shape[:-1] != v.shape[:-1] or q.ndim != k.ndim or q.ndim < 2:
        return False
    if not _compared(attempt, {}, (q, k, v), (False, True), found):
        return False
    found.convention("compared by its output only: its operations cannot be followed")
    for name in attempt.flag_names:
        if _compared(attempt, {name: True}, (q, k, v), (True,), found):
            found.convention(f"{name}=True is causal")
        elif _compared(attempt, {name: True}, (q, k, v), (False,), Judgement()):
            found.mistake("named causal but not causal")
        else:
            found.not_understood(f"With {name}=True it gives no numbers that are known here.")
    for name, role in attempt.mask_names.items() if not found.mistakes else ():
        _judge_mask(attempt, name, role, (q, k, v), found)
    large = {by_role["query"]: subject.inputs[by_role["query"]] * np.float32(1e4)}
    try:
        finite = all(np.isfinite(array).all() for array in subject.plain(large))
    except (ArithmeticError, ValueError):  # powers too large, or all of them 0
        finite = False
    if not finite:
        found.caution("exp without maximum")
    return True


def _judge_mask(attempt: Attempt, name: str, role: str, inputs: tuple[Array, Array, Array], found: Judgement) -> None:
    """Compare the results with masks in every known form with the masked formula."""
    (q, k, v), subject = inputs, attempt.subject
    batch, (queries, keys) = q.shape[0] if q.ndim > 2 else 1, (q.shape[-2], k.shape[-2])
    mask, accepted, changed, before = random_mask(batch, queries, keys, 0), 0, False, subject.plain()
    own = np.tril(np.ones((queries, keys), bool), keys - queries if "always causal" in found.conventions else keys)
    for convention in conventions(name, role):
        try:
            arrays = subject.plain(constants={name: subject.as_argument(convention.encode(mask))})
        except Exception:  # another form
            continue
        accepted += 1
        allowed = convention.restrict(mask).reshape(batch, *(1,) * (q.ndim - 3), queries, keys) & own
        steps = attend(q, k, v, scale=q.shape[-1] ** -0.5, mask=allowed[0] if q.ndim == 2 else allowed)
        if any(_equal(array, np.asarray(steps.context)) for array in arrays):
            found.convention(f"mask: {convention.summary}")
            return
        changed |= not all(map(np.array_equal, arrays, before))
    if changed:
        found.not_understood(f"With {name} it gives no numbers that are known here.")
    elif accepted:
        found.mistake("mask ignored")


def _equal(array: Array, context: Array) -> bool:
    size = max(1.0, float(np.abs(context).max()))
    return array.shape == context.shape and float(np.abs(array - context).max()) <= 2e-4 * size


def _compared(
    attempt: Attempt, constants: Mapping[str, object], inputs: tuple[Array, Array, Array], causal: tuple[bool, ...],
    found: Judgement,
) -> bool:  # fmt: skip
    """Note what the results equal: the formula, or the formula with known mistakes; False if nothing known."""
    try:
        arrays = attempt.subject.plain(constants=constants)
    except Exception:  # a flag may need more arguments
        return False
    for names, is_causal, context in _variants(*inputs, causal):
        for array in arrays:
            if _equal(array, context):
                for name in names:
                    found.mistake(name)
                found.compared += not names
                found.difference = max(found.difference, float(np.abs(array - context).max()))
                if not constants:
                    found.convention("always causal" if is_causal else "bidirectional")
                return True
    return False


def _variants(q: Array, k: Array, v: Array, causal: tuple[bool, ...]) -> Iterator[tuple[list[str], bool, Array]]:
    """Yield results of the formula with at most two known mistakes: their names, whether it is causal, the context."""
    scales = {"": -0.5, "no scale": 0.0, "scale by d_k": -1.0, "scale multiplied": 0.5}
    numbers = {name: float(q.shape[-1] ** power) for name, power in scales.items()}
    numbers["scale by number of tokens"] = float(q.shape[-2] ** -0.5)
    operands = {
        "": (q, k, v), "keys and values swapped": (q, v, k), "KQᵀ instead of QKᵀ": (k, q, v),
        "keys from the queries": (q, q, v), "queries from the keys": (k, k, v), "keys from the values": (q, v, v),
        "values from the keys": (q, k, k), "values from the queries": (q, k, q),
    }  # fmt: skip
    rows = [
        ([name for name in names if name], *names, is_causal)
        for *names, is_causal in product(operands, numbers, _NORMALISATIONS, _DIAGONALS, causal)
        if sum(map(bool, names)) <= 2 and (is_causal or not names[-1])
    ]
    ones = np.ones((q.shape[-2], k.shape[-2]), bool)
    for names, operand, scale, over, diagonal, is_causal in sorted(rows, key=lambda row: len(row[0])):
        mask = np.tril(ones, k.shape[-2] - q.shape[-2] + _DIAGONALS[diagonal]) if is_causal else None
        try:
            steps = attend(*operands[operand], scale=numbers[scale], mask=mask, normalise=_NORMALISATIONS[over])
        except (PeasyError, ValueError):
            continue  # other lengths, or a sum of 0
        yield names, is_causal, np.asarray(steps.context)
