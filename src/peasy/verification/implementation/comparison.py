"""Comparison with the formula in float64, and the way of the context to the result."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from peasy.formula.attention import attend
from peasy.verification.implementation.core import NO_TOKEN, Array, Core
from peasy.verification.implementation.judgement import Judgement, tolerance_of
from peasy.verification.implementation.lineage import first_mixing_op
from peasy.verification.implementation.reading import Reading
from peasy.verification.implementation.repeated_call import Digits, RepeatedCall, binary_digits
from peasy.verification.implementation.trace import in_library_of, to_float

_SOME_ROWS = 0.2
"""A wrong merge of heads mixes most rows; fewer that seem mixed are rounding of large numbers."""


def compare(reading: Reading, found: Judgement) -> None:
    """Compare weights and context with the formula, computed in float64 from the recorded queries, keys and values."""
    core = reading.core
    count, queries, keys = core.shape
    factor, bias = reading.factor or 1.0, reading.bias
    assert bias is not None
    assert reading.allowed is not None
    values = core.values[core.value_rows].reshape(count * queries, keys, -1)
    query = core.left.reshape(count * queries, 1, -1)
    key = np.repeat(core.right[:, None], queries, axis=1).reshape(count * queries, keys, -1)
    allowed = reading.allowed.reshape(count * queries, 1, keys)
    added = np.where(reading.allowed, bias, 0.0).reshape(count * queries, 1, keys)
    if reading.extra is not None:  # a sink is a key whose score is given and whose value is zero
        extra = reading.extra.reshape(count * queries, 1, -1)
        pad = np.zeros((count * queries, extra.shape[-1], 1))
        key = np.concatenate([key, np.broadcast_to(pad, (*pad.shape[:2], key.shape[-1]))], axis=1)
        values = np.concatenate([values, np.broadcast_to(pad, (*pad.shape[:2], values.shape[-1]))], axis=1)
        added, allowed = np.concatenate([added, extra], axis=-1), np.concatenate([allowed, extra == extra], axis=-1)
    if reading.head_factors:
        query, factor = _scaled_queries(reading).reshape(query.shape), 1.0
    steps = attend(query, key, values, scale=factor, bias=added, mask=allowed, softcap=reading.softcap)
    weights = np.asarray(steps.weights)[..., 0, :keys].reshape(core.shape)
    context = np.asarray(steps.context).reshape(count, queries, -1)
    known = reading.allowed.any(axis=-1)  # what a fully masked row gives is not defined
    pairs = ((weights, core.weights), (context, _context_rows(reading)))
    error = max(_distance(expected[known], actual[known]) for expected, actual in pairs)
    found.difference = max(found.difference, error)
    if error <= tolerance_of(reading):
        found.compared += 1
    else:
        found.not_understood(f"Its weights or its context differ from the formula by {error:.1e}.")


def _scaled_queries(reading: Reading) -> Array:
    """Return the queries times the temperature of their head."""
    assert reading.masked is not None
    assert reading.bias is not None
    assert reading.allowed is not None
    scaled = reading.core.left.copy()
    for n in range(len(scaled)):
        free = reading.allowed[n] & (np.abs(reading.product[n]) > 1e-6)
        moved = (reading.masked[n] - reading.bias[n])[free] / reading.product[n][free]
        scaled[n] *= float(np.median(moved))
    return scaled


def _context_rows(reading: Reading) -> Array:
    rows = reading.core.context_view(to_float(reading.core.context.outputs[0]))
    return np.asarray(rows.reshape(-1, rows.shape[-1])[reading.core.context_rows])


def _distance(expected: Array, actual: Array) -> float:
    known = np.isfinite(actual)
    if not known.any():
        return float("inf")
    return float(np.abs(expected - actual)[known].max() / max(1.0, float(np.abs(expected[known]).max())))


def judge_output(
    subject: RepeatedCall, reading: Reading, found: Judgement, seed: int, others: Sequence[Reading] = ()
) -> None:
    """Judge how the context reaches the result: one row per token, not mixed; `others` have the other sequences."""
    leaf = _output_leaf(reading)
    if leaf is None:
        found.not_understood("No part of its result has one row per token.")
        return
    number, codes, expected = leaf
    own, elsewhere = (
        codes[np.concatenate([np.maximum(each.query.tokens, 0).ravel() for each in several] or [[]]).astype(int)]
        for several in ((reading,), [each for each in others if each.query.input == reading.query.input])
    )
    expected = np.where(np.isin(expected, np.setdiff1d(elsewhere, own)), NO_TOKEN, expected)
    reached = _context_tokens(subject, reading, codes, number, seed)
    if reached is None:
        found.not_understood("Its result changes in an unknown way with the context.")
        return
    if np.array_equal(reached, expected):
        return
    times = reading.core.spread(reading.query_times, tuple(reading.core.context.outputs[0].shape))
    mixing = first_mixing_op(reading.trace, reading.core.context, times, len(reading.trace.ops))
    if mixing is not None and (reached != NO_TOKEN).any() and (reached != expected).mean() > _SOME_ROWS:
        found.mistake("heads merged without transpose", mixing.place)
    elif (reached == NO_TOKEN).any():
        found.not_understood("A part of its result does not depend on the context.")
    else:
        found.not_understood("A row of its result depends on the context of other tokens.")


def _output_leaf(reading: Reading) -> tuple[int, Array, Array] | None:
    """Return the number of the result's array, codes of the query tokens, and the codes expected in its rows."""
    shape = reading.query.shape
    tokens = np.arange(int(np.prod(shape))).reshape(shape)
    for number, (leaf, source) in enumerate(reading.trace.results):
        lead = tuple(leaf.shape[:-1])
        if source is None or reading.core.context.index > source[0]:
            continue
        if lead == shape:
            return number, tokens.reshape(-1), tokens
        if len(set(shape)) == len(shape) and sorted(lead) == sorted(shape):  # its axes are in another order
            return number, tokens.reshape(-1), tokens.transpose([shape.index(size) for size in lead])
        if len(shape) == 3 and len(lead) == 2 and len(reading.attended) == 1:
            heads = [axis for axis in (1, 2) if axis not in reading.attended]
            merged = np.take(tokens, 0, axis=heads[0]) if len(heads) == 1 else None
            if merged is not None and merged.shape == lead:
                codes = np.broadcast_to(np.expand_dims(merged, heads[0]), shape)
                return number, codes.reshape(-1), merged
    return None


def _context_tokens(subject: RepeatedCall, reading: Reading, codes: Array, number: int, seed: int) -> Array | None:
    """Return which token's context each row of a result depends on, by changing the context of half of the tokens."""
    core, results = reading.core, reading.trace.results
    rows = codes[np.maximum(reading.query.tokens, 0)]
    base = to_float(results[number][0])
    digits, smallest = Digits(base.shape[:-1]), 1e-4 * max(1.0, float(np.nanmax(np.abs(base))))
    for digit, state, chosen in binary_digits(rows, int(codes.max()) + 1):
        trace = subject.trace(overrides={core.context.index: partial(_shift_rows, core, chosen, seed)})
        if len(trace.results) != len(results):
            return None
        moved = np.abs(np.nan_to_num(to_float(trace.results[number][0]) - base)) > smallest
        digits.add(digit, state, moved.any(axis=-1))
    return digits.tokens()


def _shift_rows(core: Core, chosen: Array, seed: int, result: Any) -> object:
    """Return the context with noise added to some rows, as large as its own numbers."""
    noise = np.random.default_rng([seed, 5]).normal(0, 1, tuple(result.shape))
    noise *= max(1.0, float(np.abs(np.nan_to_num(to_float(result))).max()))
    return result + in_library_of(result, noise * core.spread(chosen, tuple(result.shape)))
