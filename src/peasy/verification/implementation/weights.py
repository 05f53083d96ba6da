"""Weights: softmax over the right axis, once, and what happens to them before the product with the values."""

import re

import numpy as np

from peasy.verification.implementation.core import Array
from peasy.verification.implementation.judgement import (
    Judgement,
    close_to,
    function_source,
    line_that_sets,
    place_of,
    statement,
    tolerance_of,
)
from peasy.verification.implementation.names import role_of
from peasy.verification.implementation.reading import Reading, softmax_over
from peasy.verification.implementation.scale import late_factor, late_scale_op, scaled_late
from peasy.verification.implementation.trace import Op, Place


def _groups(reading: Reading) -> dict[str, Array]:
    """Return group numbers `[n, query, key]` for a softmax over keys, queries, heads, batch, or everything."""
    count, queries, keys = reading.core.shape
    n, i, _ = np.indices(reading.core.shape)
    token_q = np.broadcast_to(reading.query.tokens[:, :, None], n.shape)
    token_k = np.broadcast_to(reading.key.tokens[:, None, :], n.shape)
    order = np.zeros((count, queries), dtype=np.int64)  # how often the token came before: the head
    seen: dict[int, int] = {}
    for index, token in np.ndenumerate(reading.query.tokens):
        before = seen.get(int(token), 0)
        order[index] = before
        seen[int(token)] = before + 1
    head = np.broadcast_to(order[:, :, None], n.shape)
    time_q = np.broadcast_to(reading.query_times[:, :, None], n.shape)
    time_k = np.broadcast_to(reading.key_times[:, None, :], n.shape)
    big = count * queries * keys + max(int(token_q.max()), int(token_k.max())) + 2
    return {
        "keys": n * big + i,
        "queries": (token_k + 1) * big + head,
        "heads": (token_q + 1) * big + token_k,
        "batch": (head * big + time_q) * big + time_k,
        "heads of all sequences": time_q * big + time_k,
        "all scores": n,
    }


def judge_weights(reading: Reading, found: Judgement) -> None:
    """Judge how the weights are made from the scores."""
    weights = reading.core.weights
    if reading.normaliser in ("none", "sum"):
        _judge_without_softmax(reading, found)
        return
    if reading.normaliser != "softmax" or reading.masked is None:
        found.not_understood(f"The weights are not a softmax that is known here: {reading.normaliser or 'not found'}.")
        return
    op = reading.normaliser_ops[0]
    direct = reading.masked if reading.powers is None else reading.powers
    scores = np.where(np.isnan(direct), -np.inf, direct)
    first = weights if reading.normalised is None else reading.normalised
    over, tolerance = "", tolerance_of(reading)
    groups = _groups(reading)
    for name, numbers in groups.items():
        if close_to(_with_extra(reading, scores, numbers, name), first, tolerance):
            over = name
            break
    softmaxes = [each for each in reading.normaliser_ops if "softmax" in each.name]
    if over == "":
        twice = softmax_over(softmax_over(scores, groups["keys"]), groups["keys"])
        if reading.normalised is None and len(reading.normaliser_ops) > 1 and close_to(twice, weights):
            found.mistake("double softmax", _second_place(op, reading.normaliser_ops[-1]))
        else:
            found.not_understood("The weights are not the softmax of the scores over any one axis.")
        return
    if over == "queries" and not close_to(first, weights) and np.allclose(weights.sum(axis=-1), 1, atol=1e-5):
        found.not_understood("The softmax is over the queries, and the weights are divided by their sum over the keys.")
        return
    if over == "queries" and _queries_written_first(reading):
        found.mistake("weights transposed", place_of(reading.core.context))
    if over != "keys" and (over != "queries" or "weights transposed" not in found.mistakes):
        names = {"queries": "softmax over queries", "heads": "softmax over heads", "batch": "softmax over the batch",
                 "heads of all sequences": "softmax over heads"}  # fmt: skip
        found.mistake(names.get(over, "softmax over all scores"), _softmax_place(_axis_op(reading)))
    if reading.extra is not None:
        found.convention("attention sink: an additional score in the softmax")
    subtracted = any(each.name in ("amax", "max", "logsumexp", "sub", "sub_") for each in reading.core.path)
    if op.name in ("exp", "exp_") and not subtracted:
        found.caution("exp without maximum", op.place)
    if len(softmaxes) > 1 and reading.normalised is not None:
        found.mistake("double softmax", _second_place(softmaxes[0], softmaxes[1]))
    elif not close_to(first, weights, tolerance) and over == "keys":
        _judge_after_softmax(reading, first, found)


def _queries_written_first(reading: Reading) -> bool:
    """Return whether queries and keys exchanged their roles since the product: by the names in its statement."""
    roles = [role_of(name) for name in re.findall(r"[^\W\d]\w*", statement(reading.core.scores.place))]
    return reading.core.swapped and [role for role in roles if role in ("query", "key")][:1] == ["query"]


def _axis_op(reading: Reading) -> Op:
    """Return the operation that decides over which axis the weights sum to 1: the softmax, or the sum of powers."""
    first = reading.normaliser_ops[0]
    sums = [op for op in reading.core.path if op.index > first.index and op.name == "sum"]
    return sums[0] if "softmax" not in first.name and sums else first


def _softmax_place(op: Op) -> Place | None:
    """Return the line of a softmax: of the caller or constructor, if that chooses the axis."""
    made = line_that_sets(op.place, r"(self\.\w+)\(", r".*Softmax\(")
    if made is not None:
        return made
    chosen_here = op.place is not None and re.search(r"(dim|axis) *= *-?\d|softmax\(.*, *-?\d", op.place.code)
    of_caller = not chosen_here and op.callers and re.search("axis|dim", op.callers[0].code)
    return op.callers[0] if of_caller else op.place


def _second_place(first: Op, second: Op) -> Place | None:
    """Return the line of the second softmax: where the calls of the two part, or one line that calls both."""
    lines = list(filter(None, (second.place, *second.callers)))
    parted = [each for other, each in zip((first.place, *first.callers), lines, strict=False) if other != each]
    return next(iter(parted + [each for each in lines if statement(each).count("softmax") > 1]), second.place)


def _with_extra(reading: Reading, scores: Array, groups: Array, name: str) -> Array:
    """Return the softmax of the scores; over keys together with the additional scores, if any."""
    if reading.extra is None or name != "keys":
        return softmax_over(scores, groups)
    joined = np.concatenate([scores, reading.extra], axis=-1)
    rows = np.arange(joined.shape[0] * joined.shape[1]).reshape(*joined.shape[:2], 1)
    return softmax_over(joined, np.broadcast_to(rows, joined.shape))[..., : scores.shape[-1]]


def _judge_after_softmax(reading: Reading, softmax: Array, found: Judgement) -> None:
    """Judge what happens to the weights after the softmax."""
    weights = reading.core.weights
    if scaled_late(reading):
        found.mistake("scale after softmax", place_of(late_scale_op(reading)))
        softmax = softmax * late_factor(reading)
    removed = (np.abs(weights) < 1e-3 * softmax) & (softmax > 1e-9)
    op = next((op for op in reading.core.path if op.index > reading.normaliser_ops[0].index
               and op.name.rstrip("_") in ("mul", "masked_fill", "where", "tril", "triu")), None)  # fmt: skip
    kept = np.where(removed, 0, softmax)
    if removed.any() and close_to(kept, weights):
        found.mistake("mask after softmax", place_of(op))
    elif removed.any() and close_to(kept / np.maximum(kept.sum(axis=-1, keepdims=True), 1e-30), weights):
        reading.allowed = None if reading.allowed is None else reading.allowed & ~removed
    elif not close_to(softmax, weights):
        found.not_understood("After the softmax the weights are changed in an unknown way.")


def _judge_without_softmax(reading: Reading, found: Judgement) -> None:
    weights = reading.core.weights
    if reading.masked is None:
        found.not_understood("There is no softmax between the scores and the product with the values.")
        return
    scores = np.nan_to_num(reading.masked, neginf=0.0)
    total = scores.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        if close_to(np.nan_to_num(scores / total), weights):
            found.mistake("sum instead of softmax", place_of(next(iter(reading.normaliser_ops), None)))
            return
    if not close_to(scores, np.nan_to_num(weights, neginf=0.0)):
        found.not_understood("There is no softmax between the scores and the product with the values.")
    elif "softmax" in function_source(reading.core.context.place):
        found.not_understood("The scores are the weights in this call; the function has a softmax elsewhere.")
    else:
        same = {op.place for op in reading.core.path} | {reading.core.context.place}
        found.mistake("no softmax", same.pop() if len(same) == 1 else None)


def judge_half_precision(reading: Reading, found: Judgement) -> None:
    """Caution if the softmax has fewer digits than the inputs."""
    for op in reading.normaliser_ops[:1]:
        dtype = str(getattr(op.values[0], "dtype", ""))
        product = str(getattr(reading.core.scores.values[-1], "dtype", ""))
        if (any(half in dtype for half in ("float16", "bfloat16")) and dtype != product) or (
            "16" in product
            and "32" in str(next((each.outputs[0].dtype for each in reading.trace.ops if each.name == "input"), ""))
        ):
            found.caution("half-precision softmax", op.place)
