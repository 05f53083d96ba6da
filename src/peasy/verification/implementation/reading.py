"""Reading of one attention in a trace: tokens, scale, mask, bias and normalisation, by values and by experiment."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peasy.verification.implementation.core import MIXED, NO_TOKEN, Array, Core, as_batch, is_activation
from peasy.verification.implementation.lineage import Lineage, lineage
from peasy.verification.implementation.repeated_call import RepeatedCall, Watch, trace_tokens
from peasy.verification.implementation.trace import NotRepeatable, Op, Trace, to_float

_SOFTMAX = ("_softmax", "_safe_softmax", "softmax", "_log_softmax")
_EXP = ("exp", "exp_", "exp2", "special_exp2")
_ROW_NUMBERS = (
    "amax", "max", "maximum", "logsumexp", "mean", "clamp", "detach", "alias", "unsqueeze", "view", "expand",
)  # fmt: skip
"""Operations whose result is one number per row, subtracted before exp."""
_MAX_CAP = 1e5
"""Larger limits of a score are no soft cap."""
HIDDEN = -50.0
"""Scores below this get a weight of practically 0: e^-50."""


@dataclass(eq=False)
class TokenRows:
    """Tokens of the rows of queries, keys or values: the input they depend on, and flat token indices of that input."""

    input: str
    tokens: Array
    shape: tuple[int, ...]
    others: tuple[str, ...] = ()

    @property
    def mixed(self) -> bool:
        """True if some row depends on several tokens."""
        return bool((self.tokens == MIXED).any())

    @property
    def positions(self) -> Array:
        """Positions `[axis, ...]` in the input; rows without a token have -1."""
        known = np.maximum(self.tokens, 0)
        axes = np.array(np.unravel_index(known, self.shape))
        return np.where(self.tokens[None] < 0, -1, axes)


@dataclass(eq=False)
class Reading:
    """What one attention does: masked scores = factor · product + bias, and hidden where `allowed` is False.

    `times`: token indices `[n, query]` and `[n, key]` along the attended axes of the input.
    """

    core: Core
    trace: Trace
    query: TokenRows
    key: TokenRows
    value: TokenRows
    query_line: Lineage
    key_line: Lineage
    value_line: Lineage
    attended: tuple[int, ...] = ()
    query_times: Array = field(default_factory=lambda: np.zeros(0))
    key_times: Array = field(default_factory=lambda: np.zeros(0))
    product: Array = field(default_factory=lambda: np.zeros(0))
    masked: Array | None = None
    masked_op: Op | None = None
    bias: Array | None = None
    factor: float | None = None
    softcap: float | None = None
    floored: bool = False
    allowed: Array | None = None
    replaced: Array | None = None
    normaliser: str = ""
    normaliser_ops: list[Op] = field(default_factory=list)
    normalised: Array | None = None
    powers: Array | None = None
    extra: Array | None = None
    bias_learned: bool = False
    bias_from_inputs: bool = False
    head_factors: bool = False

    @property
    def rows(self) -> dict[str, TokenRows]:
        """Tokens of queries, keys and values."""
        return {"query": self.query, "key": self.key, "value": self.value}

    @property
    def lines(self) -> dict[str, Lineage]:
        """What led to queries, keys and values."""
        return {"query": self.query_line, "key": self.key_line, "value": self.value_line}

    @property
    def d_key(self) -> int:
        """Width of queries and keys."""
        return int(self.core.left.shape[-1])

    @property
    def scale(self) -> float | None:
        """Number by which the product of the unscaled queries and keys is multiplied in all."""
        if self.factor is None or not (self.query_line.consistent and self.key_line.consistent):
            return None
        return self.factor * self.query_line.factor * self.key_line.factor


def read_cores(subject: RepeatedCall, trace: Trace, cores: list[Core], seed: int) -> list[Reading]:
    """Read the attention of a trace; the tokens of all rows are found with the same calls."""
    watches: dict[str, Watch] = {}
    for number, core in enumerate(cores):
        watches |= {f"{number} {part}": watch for part, watch in _watches(core).items()}
    found = trace_tokens(subject, trace, watches, seed)
    memory: dict[int, Lineage] = {}
    readings = []
    for number, core in enumerate(cores):
        query, key, value = (_choose(subject, found[f"{number} {part}"]) for part in ("query", "key", "value"))
        q, k = core.scores.inputs[-2:] if not core.swapped else core.scores.inputs[-2:][::-1]
        v = core.context.inputs[-2:][1 - core.weights_operand]
        made_by = lineage(trace, q, memory), lineage(trace, k, memory), lineage(trace, v, memory)
        reading = Reading(core, trace, query, key, value, made_by[0], made_by[1], made_by[2])
        _read_times(reading)
        reading.product = core.left @ core.right.swapaxes(-1, -2)
        _find_normaliser(reading)
        if reading.masked_op is not None:
            _probe_scores(subject, reading)
        readings.append(reading)
    return readings


def _watches(core: Core) -> dict[str, Watch]:
    def operand(number: int) -> Any:
        return lambda op: as_batch(op.values[-2 + number], number == 0)

    def values(op: Op) -> Array:
        return as_batch(op.values[-2 + 1 - core.weights_operand], core.weights_operand == 1).swapaxes(-1, -2)

    queries, keys = (operand(1), operand(0)) if core.swapped else (operand(0), operand(1))
    return {
        "query": (core.scores.index, queries), "key": (core.scores.index, keys), "value": (core.context.index, values),
    }  # fmt: skip


def _choose(subject: RepeatedCall, by_input: dict[str, Array]) -> TokenRows:
    """Choose the input on which most rows depend."""
    counts = {name: int((tokens != NO_TOKEN).sum()) for name, tokens in by_input.items()}
    names = sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])
    if not names:
        return TokenRows("", np.full(next(iter(by_input.values())).shape, NO_TOKEN), (1,))
    shape = subject.inputs[names[0]].shape[:-1]
    return TokenRows(names[0], by_input[names[0]], shape, tuple(names[1:]))


def _read_times(reading: Reading) -> None:
    """Find along which axes of the input the attention runs, and the tokens' indices along them."""
    query, key = reading.query, reading.key
    if query.mixed or key.mixed or not query.input or not key.input:
        return
    at_query, at_key = query.positions[:, :, :, None], key.positions[:, :, None, :]
    known = (query.tokens >= 0)[:, :, None] & (key.tokens >= 0)[:, None, :]
    count = min(len(at_query), len(at_key))
    if len(at_query) != len(at_key):  # different numbers of axes: heads are missing in one of them
        reading.attended = (-1,)
        reading.query_times, reading.key_times = query.positions[-1], key.positions[-1]
        return
    attended = [axis for axis in range(count) if bool((known & (at_query[axis] != at_key[axis])).any())]
    heads = [axis for axis in attended if query.shape[axis] != key.shape[axis] and len(attended) > 1]
    attended = [axis for axis in attended if axis not in heads or query.shape[axis] % key.shape[axis]]
    reading.attended = tuple(attended)
    reading.query_times = _flat_times(query, attended)
    reading.key_times = _flat_times(key, attended)


def _flat_times(rows: TokenRows, axes: list[int]) -> Array:
    times = np.zeros(rows.tokens.shape, dtype=np.int64)
    for axis in axes:
        times = times * rows.shape[axis] + np.maximum(rows.positions[axis], 0)
    return np.where(rows.tokens < 0, NO_TOKEN, times)


def _find_normaliser(reading: Reading) -> None:
    core, path = reading.core, reading.core.path
    softmaxes = [op for op in path if op.name in _SOFTMAX]
    exps = [op for op in path if op.name in _EXP and not any(s.name == "_log_softmax" for s in softmaxes)]
    sums = [op for op in path if op.name in ("sum", "mean", "cumsum")]
    strange = {op.name for op in path} & {"sigmoid", "relu", "relu_", "topk", "sort", "square", "cumsum"}
    reading.normaliser_ops = softmaxes or exps
    if strange:
        reading.normaliser = f"unknown ({', '.join(sorted(strange))})"
        return
    if softmaxes:
        reading.normaliser = "softmax"
        _take_masked(reading, softmaxes[0])
    elif exps and (sums or any(op.name == "logsumexp" for op in path)):
        reading.normaliser = "softmax"
        _take_masked(reading, exps[0])
        divided = [op for op in path if op.name.rstrip("_") == "div" and sums and op.index > sums[0].index]
        if len(exps) == len(sums) == 1 and divided and core.covers(divided[0]):
            reading.normalised = core.gather(divided[0], divided[0].outputs[0])
    elif exps:
        reading.normaliser = "unknown (exp without a sum)"
    else:
        reading.normaliser = "sum" if sums else "none"
        _take_last(reading, bool(sums))


def _take_masked(reading: Reading, op: Op) -> None:
    """Take the input of the softmax or of exp; for exp before its maximum was subtracted."""
    trace, core = reading.trace, reading.core
    source, value = op.inputs[0], op.values[0]
    producer = trace.ops[source[0]]
    if producer.name.rstrip("_") == "sub" and len(producer.inputs) == 2:  # changes no softmax
        other = trace.ops[producer.inputs[1][0]]
        if other.name in _ROW_NUMBERS:
            source, value = producer.inputs[0], producer.values[0]
    if op.name in _EXP and op.inputs[0][0] in core.index_of:
        reading.powers = core.gather(trace.ops[op.inputs[0][0]], op.values[0])
    if source[0] in core.index_of and core.index_of[source[0]].size < np.prod(core.shape):  # one part after another
        whole = [each for each in core.path if each.index < op.index and core.covers(each)]
        source, value = (whole[-1].index, 0), whole[-1].outputs[0]
    if source[0] in core.index_of:
        reading.masked_op = trace.ops[source[0]]
        reading.masked = core.gather(reading.masked_op, value)
        reading.extra = _extra_columns(core, core.index_of[source[0]], to_float(value))
    if op.name in _SOFTMAX and op.index in core.index_of and core.covers(op):
        reading.normalised = core.gather(op, op.outputs[0])


def _take_last(reading: Reading, has_sums: bool) -> None:
    """Without a softmax: the scores before a division by their sum, or the last numbers per query and key."""
    core, trace = reading.core, reading.trace
    for op in core.path if has_sums else reversed(core.path):
        divides = op.name.rstrip("_") == "div" and len(op.inputs) == 2
        if has_sums and not divides:
            continue
        source = op.inputs[0][0] if has_sums else op.index
        if source in core.index_of:
            reading.masked_op, reading.normaliser_ops = trace.ops[source], [op] if has_sums else []
            reading.masked = core.gather(trace.ops[source], trace.ops[source].outputs[0])
            return


def _extra_columns(core: Core, index: Array, value: Array) -> Array | None:
    """Return the additional scores of each query (sinks) `[n, query, extra]`; None if there are none."""
    count = int((index < 0).sum())
    queries = core.shape[0] * core.shape[1]
    if not count or count % queries or index.ndim < 2:
        return None
    index, value = index.reshape(-1, index.shape[-1]), value.reshape(-1, value.shape[-1])
    rows = index.max(axis=-1) // core.shape[2]
    extra = np.zeros((queries, count // queries))
    for row, at, numbers in zip(rows, index, value, strict=True):
        if (at < 0).sum() != count // queries:
            return None
        extra[row] = numbers[at < 0]
    return extra.reshape(*core.shape[:2], -1)


def _probe(subject: RepeatedCall, reading: Reading, number: float | None = None, shrink: float = 1.0) -> Array:
    """Return the masked scores when every product of a query and a key is replaced by a number, or multiplied."""
    core = reading.core

    def override(result: Any) -> object:
        return result * shrink if number is None else result * 0 + number

    trace = subject.trace(overrides={core.scores.index: override})
    assert reading.masked_op is not None
    if len(trace.ops) != len(reading.trace.ops):
        raise NotRepeatable
    op = trace.ops[reading.masked_op.index]
    return core.gather(op, op.outputs[0])


def _probe_scores(subject: RepeatedCall, reading: Reading) -> None:
    """Find bias, factor, soft cap and masked positions by replacing the products."""
    assert reading.masked is not None
    product, masked = reading.product, reading.masked
    bias, turned = _probe(subject, reading, 0.0), _probe(subject, reading, shrink=-0.5)
    finite = np.isfinite(bias) & np.isfinite(masked)
    hidden = ~finite | (bias < HIDDEN)
    moved = np.where(finite, masked - np.where(finite, bias, 0), 0.0)
    large = np.abs(product) > 1e-3 * np.abs(product).max()
    still = finite & ~hidden & (moved == 0) & (turned == bias) & large
    reading.bias, reading.allowed, reading.replaced = bias, ~hidden & ~still, still
    free = reading.allowed & (np.abs(product) > 0.02 * np.abs(product).max())
    if not free.any() or (still | ~large | hidden).all():
        reading.factor = 0.0 if still.all() else None
        return
    ratio = moved[free] / product[free]
    if _constant(ratio, 2e-4):
        reading.factor = float(np.median(ratio))
    elif np.allclose(moved[free], np.round(moved[free]), atol=1e-6) and np.abs(moved[free]).max() >= 1:
        reading.floored = True
    else:
        _read_softcap(subject, reading, moved, free)
        if reading.factor is None and _per_head(reading, moved, free):
            reading.factor, reading.head_factors = float(np.median(ratio)), not _constant(ratio)
    added = _added(reading)
    reading.bias_learned = any(root.startswith("parameter") for op in added for root in op.roots)
    reading.bias_from_inputs = reading.bias_learned and any(map(is_activation, added))


def _constant(ratio: Array, tolerance: float = 2e-3) -> bool:
    middle = float(np.median(ratio))
    return bool(np.all(np.abs(ratio - middle) <= tolerance * max(abs(middle), 1e-9)))


def _per_head(reading: Reading, moved: Array, free: Array) -> bool:
    """Return whether the factor is constant for each `n`, but not overall: one temperature per head."""
    return all(
        not free[n].any() or _constant(moved[n][free[n]] / reading.product[n][free[n]]) for n in range(len(free))
    )


def _read_softcap(subject: RepeatedCall, reading: Reading, moved: Array, free: Array) -> None:
    """Find c and a with scaled = c · tanh(a · product / c)."""
    assert reading.bias is not None
    cap = np.abs(_probe(subject, reading, 1e7)[free] - reading.bias[free])
    if not np.isfinite(cap).all() or not _constant(cap) or cap.max() > _MAX_CAP:
        return
    limit, one = float(np.median(cap)), _probe(subject, reading, 1.0)[free] - reading.bias[free]
    factor = float(np.median(np.arctanh(np.clip(one / limit, -1 + 1e-12, 1 - 1e-12)))) * limit
    if np.allclose(moved[free], limit * np.tanh(factor * reading.product[free] / limit), atol=1e-3 * limit):
        reading.softcap, reading.factor = limit, factor


def _added(reading: Reading) -> list[Op]:
    """Return what is added between product and softmax."""
    assert reading.masked_op is not None
    path = {op.index for op in reading.core.path}
    sums = [
        op for op in reading.core.path if op.name.rstrip("_") in ("add", "sub") and op.index <= reading.masked_op.index
    ]
    return [reading.trace.ops[source] for op in sums for source, _ in op.inputs if source not in path]


def softmax_over(scores: Array, groups: Array) -> Array:
    """Return the softmax of scores within groups of equal numbers."""
    flat, labels = scores.reshape(-1), np.unique(groups.reshape(-1), return_inverse=True)[1].reshape(-1)
    top = np.full(labels.max() + 1, -np.inf)
    np.maximum.at(top, labels, flat)
    top = np.where(np.isfinite(top), top, 0.0)
    powers = np.exp(flat - top[labels])
    total = np.zeros(len(top))
    np.add.at(total, labels, powers)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((powers / total[labels]).reshape(scores.shape))
