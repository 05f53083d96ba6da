"""Judgement of a reading: conventions that are named, mistakes with their line, and what is not understood."""

import linecache
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from peasy.formula.attention import attend
from peasy.verification.implementation.core import NO_TOKEN, Array, Core, is_activation
from peasy.verification.implementation.lineage import columns_of, first_mixing_op, lineage, number_of, parameters_of
from peasy.verification.implementation.names import projection_role
from peasy.verification.implementation.reading import Reading, softmax_over
from peasy.verification.implementation.repeated_call import RepeatedCall
from peasy.verification.implementation.trace import Op, Place, in_library_of, to_float

_TOLERANCE = 2e-4
"""Of float32 results of order 1."""


@dataclass
class Judgement:
    """Findings so far: mistakes by name with their place, conventions, and reasons why nothing can be said."""

    mistakes: dict[str, Place | None] = field(default_factory=dict)
    cautions: dict[str, Place | None] = field(default_factory=dict)
    conventions: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    difference: float = 0.0
    compared: int = 0

    def mistake(self, name: str, place: Place | None = None) -> None:
        """Add a mistake once; the first place counts."""
        self.mistakes.setdefault(name, place)

    def caution(self, name: str, place: Place | None = None) -> None:
        """Add a caution once."""
        self.cautions.setdefault(name, place)

    def convention(self, text: str) -> None:
        """Add a convention once."""
        if text not in self.conventions:
            self.conventions.append(text)

    def take(self, other: "Judgement") -> None:
        """Add the mistakes and comparisons of another judgement."""
        for name, place in other.mistakes.items():
            self.mistake(name, place)
        self.compared += other.compared
        self.difference = max(self.difference, other.difference)

    def not_understood(self, text: str) -> None:
        """Add a reason why something was not compared."""
        if text not in self.unknown:
            self.unknown.append(text)


@dataclass(frozen=True)
class Context:
    """What is known besides the trace: width of the model, roles of the inputs, hints from names."""

    model_width: int = 0
    input_roles: dict[str, str] = field(default_factory=dict)
    named_causal: bool = False
    free_scale: bool = False
    function: bool = False
    parameter_names: tuple[str, ...] = ()
    scaling_caller: str = ""
    scale_argument: bool = False


def judge(subject: RepeatedCall, reading: Reading, context: Context, found: Judgement) -> None:
    """Judge one attention in the order of the data: projections, heads, scores, scale, mask, weights, context."""
    tokens = Judgement()
    understood = _judge_tokens(reading, tokens)
    if understood or tokens.mistakes:
        _judge_sources(reading, context, found)
    found.take(tokens)
    for text in tokens.unknown:
        found.not_understood(text)
    if not understood:
        return
    _judge_operand_kinds(reading, context, found)
    _judge_groups(reading, found)
    _judge_scale(reading, context, found)
    _judge_weights(reading, found)
    _judge_half_precision(reading, found)
    weak = reading.replaced is not None and bool(reading.replaced.any())
    if not found.mistakes and not found.unknown and not weak:
        _compare(reading, found)


def _place(op: Op | None) -> Place | None:
    return None if op is None else op.place


# ----------------------------------------------------------------------------------------------- queries, keys, values


def _judge_sources(reading: Reading, context: Context, found: Judgement) -> None:
    """Judge which inputs and which layers queries, keys and values come from."""
    sources = _source_roles(reading, context, found)
    product, place = reading.core.scores, _place(reading.core.scores)
    if sources in (("query", "value", "key"), ("query", "value", "query")):
        found.mistake("keys and values swapped", place)
    elif sources[:2] == ("key", "query") and not reading.core.swapped:
        found.mistake("KQᵀ instead of QKᵀ", place)
    elif sources[:2] == ("key", "query"):
        found.mistake("weights transposed", _place(reading.core.context))
    elif sources[1:] == ("value", "value"):
        found.mistake("keys from the values", place)
    elif sources[:2] == ("query", "query"):
        found.mistake("keys from the queries", _operand_place(reading, "key") or _place(product))
    elif sources[:2] == ("key", "key"):
        found.mistake("queries from the keys", _operand_place(reading, "query") or _place(product))
    if sources[2] == "query" and sources[1] != "value":
        found.mistake("values from the queries", _operand_place(reading, "value"))
    elif sources[2] == "key" and sources[1] == "key":
        found.mistake("values from the keys", _operand_place(reading, "value"))


def _source_roles(reading: Reading, context: Context, found: Judgement) -> tuple[str, ...]:
    """Return what queries, keys and values are made from: by their inputs, and by layers where inputs do not tell."""
    inputs = [context.input_roles.get(rows.input, "") for rows in (reading.query, reading.key, reading.value)]
    layers = _layer_roles(reading, context, found)
    if len(context.input_roles) == 1 or not set(inputs) & {"query", "key", "value", "source"}:
        return tuple(layers)
    roles = [("key", "key", "value")[i] if role == "source" else role for i, role in enumerate(inputs)]
    if inputs[1] == inputs[2] and "value" not in context.input_roles.values():  # one input for keys and values
        roles[2] = "value" if roles[2] == "key" else roles[2]
        if inputs[1] != inputs[0] and all(layers):
            roles[1:] = layers[1:]
    return tuple(roles)


def _operand_place(reading: Reading, part: str) -> Place | None:
    """Return the line of the last projection of an operand, or of the product that takes it."""
    line = reading.lines[part]
    others = [op for each in reading.lines.values() for op in each.projections]
    if line.projections and others.count(line.projections[-1]) == 1:
        return line.projections[-1].place
    return (reading.core.context if part == "value" else reading.core.scores).place


def _layer_roles(reading: Reading, context: Context, found: Judgement) -> list[str]:
    """Return the roles of queries, keys and values from the names of their layers, or from slices of one layer."""
    names = [parameters_of(reading.trace, line.projections) for line in reading.lines.values()]
    roles = [projection_role(each) for each in names]
    if not all(names):
        return ["", "", ""]
    if len({tuple(each) for each in names}) == 3:
        return roles if len({*roles} - {""}) == 3 else ["", "", ""]
    unused = {"query", "key", "value"} & {
        projection_role([name])
        for name in context.parameter_names
        if name.endswith("weight") and name not in {n for each in names for n in each}
    }
    if unused and all(roles):
        return roles
    if names[1] == names[2]:
        return _slices(reading, names, found)
    if names[0] == names[1] and all(roles):
        found.convention("one layer makes both queries and keys")
    return ["", "", ""]


def _slices(reading: Reading, names: list[list[str]], found: Judgement) -> list[str]:
    """Judge a fused layer: which columns are queries, keys and values; two roles on the same columns are a mistake."""
    trace, core = reading.trace, reading.core
    sources = [
        *core.scores.inputs[-2:][:: -1 if core.swapped else 1],
        core.context.inputs[-2:][1 - core.weights_operand],
    ]
    columns: list[Array] = []
    for line, source in zip(reading.lines.values(), sources, strict=True):
        one = columns_of(trace, line.projections[0], source) if len(line.projections) == 1 else None
        columns.append(np.zeros(0) if one is None else one)
    if not all(len(each) for each in columns):
        return ["", "", ""]
    fused = [i for i in range(3) if names[i] == names[2]]
    width = int(reading.value_line.projections[0].outputs[0].shape[-1])
    used = np.unique(np.concatenate([columns[i] for i in fused]))
    same = [(a, b) for a in fused for b in fused if a < b and np.array_equal(columns[a], columns[b])]
    if same and len(used) < width:
        a, b = same[0]
        roles = ["query", "key", "value"]
        roles[b] = roles[a]
        return roles
    order = sorted(fused, key=lambda i: int(columns[i][0]))
    text = ", ".join(("queries", "keys", "values")[i] for i in order)
    name = names[2][0].removesuffix(".weight") or "one layer"
    found.convention(f"{name} makes {text}, in this order")
    return ["", "", ""]


def _judge_tokens(reading: Reading, found: Judgement) -> bool:
    """Judge whether each row belongs to one token, and every head sees all tokens; False if it cannot go on."""
    for part, rows in reading.rows.items():
        if not rows.input:
            found.not_understood(f"The {_PLURALS[part]} do not depend on an input.")
            return False
        if rows.mixed or not _covers_tokens(reading, part):
            op = _splitting_op(reading, part)
            if op is not None:
                found.mistake("heads split by a wrong reshape", op.place)
            elif rows.mixed:
                found.not_understood(f"One row of the {_PLURALS[part]} depends on several tokens.")
            else:
                found.not_understood(f"The {_PLURALS[part]} of one head are not one row per token.")
            return False
    if not reading.attended:
        if reading.core.shape[1] > 1:
            found.mistake("scores between heads", _place(reading.core.scores))
        else:
            found.not_understood("There is only one query and one key.")
        return False
    if not _same_tokens(reading):
        found.not_understood("Keys and values of one column belong to different tokens.")
        return False
    return True


_PLURALS = {"query": "queries", "key": "keys", "value": "values"}


def _covers_tokens(reading: Reading, part: str) -> bool:
    """Return whether the rows of each matrix are different tokens, or all tokens equally often."""
    rows = reading.rows[part]
    tokens = rows.tokens
    for row in tokens:
        known = row[row != NO_TOKEN]
        numbers, counts = np.unique(known, return_counts=True)
        if len(set(counts)) > 1:
            return False
        if len(counts) and counts[0] > 1 and len(numbers) < max(rows.shape[-1:]) and rows.shape[-1] > 1:
            return len(numbers) == 1 and bool(len({*tokens.ravel()}) > 1) and not reading.attended
    return True


def _splitting_op(reading: Reading, part: str) -> Op | None:
    """Return the view that spreads tokens over heads, on the way from the projection or the input."""
    line, rows, trace = reading.lines[part], reading.rows[part], reading.trace
    stop = (reading.core.context if part == "value" else reading.core.scores).index
    starts = line.projections or [op for op in line.ops if op.name == "input"]
    for start in starts[:2]:
        shape = tuple(start.outputs[0].shape)
        tokens = np.arange(int(np.prod(rows.shape))).reshape(rows.shape) % rows.shape[-1]
        if int(np.prod(shape[:-1])) != tokens.size:
            continue
        times = np.broadcast_to(tokens.reshape(*shape[:-1], 1), shape)
        mixing = first_mixing_op(trace, start, times, stop)
        if mixing is not None:
            return mixing
    return None


def _same_tokens(reading: Reading) -> bool:
    """Return whether key and value of one column have the same position."""
    values = reading.value.positions.reshape(len(reading.value.positions), -1)[:, reading.core.value_rows]
    keys = reading.key.positions[:, :, None, :]
    if len(values) != len(keys):
        return True
    known = (values >= 0) & (keys >= 0)
    return not bool((known & (values != keys))[list(reading.attended)].any())


def _judge_operand_kinds(reading: Reading, context: Context, found: Judgement) -> None:
    """Name norms, rotary tables and unknown operations between the layers and the product."""
    for part, line in reading.lines.items():
        for kind in sorted(line.kinds):
            if kind == "norm" and part != "value":
                found.convention("norm of queries and keys (QK-norm)")
            elif kind == "table" and part != "value":
                found.convention("positions in queries and keys (rotary)")
            elif kind in ("gain",):
                continue
            else:
                found.not_understood(f"The {_PLURALS[part]} go through an operation that is not known here: {kind}.")
    if context.function:
        return
    before = [op for line in reading.lines.values() for op in line.projections]
    kinds = {
        kind for op in before for kind in lineage(reading.trace, op.inputs[0 if op.name == "convolution" else -2]).kinds
    }
    if "norm" in kinds:
        found.convention("norm before the projections")


def _judge_groups(reading: Reading, found: Judgement) -> None:
    """Judge grouped queries: which query heads share a key head."""
    keys = reading.core.right
    heads = _heads(reading)
    if heads is None or heads.shape[1] < 4:
        return
    for row in heads:
        shared = [next(m for m in range(len(row)) if np.array_equal(keys[row[m]], keys[n])) for n in row]
        groups = len(set(shared))
        if groups in (1, len(row)):
            if groups == 1:
                found.convention("all query heads share one key and value head (multi-query)")
            return
        size = len(row) // groups
        if shared == [head // size * size for head in range(len(row))]:
            found.convention(f"grouped-query attention: {groups} key/value heads for {len(row)} query heads")
            return
        if shared == [head % groups for head in range(len(row))]:
            grown = [op for op in reading.key_line.ops if op.name in _COPIES and _grows(op)]
            first = min(grown, key=lambda op: (_COPIES.index(op.name), -op.index), default=None)
            found.mistake("kv heads tiled", _place(first))
            return
        found.not_understood("Query heads share key heads in an unknown order.")
        return


_COPIES = ("repeat", "tile", "index", "index_select", "expand", "cat")


def _grows(op: Op) -> bool:
    """Return whether a result has more numbers than each input."""
    sizes = [int(np.prod(tuple(value.shape))) for value in (op.outputs[0], *op.values)]
    return len(sizes) > 1 and sizes[0] > max(sizes[1:])


def _heads(reading: Reading) -> Array | None:
    """Return the matrices `n` of each sequence, in order: `[sequence, head]`; None if heads are not matrices."""
    first = reading.query.tokens[:, 0]
    if len(np.unique(reading.query.tokens[0])) != reading.query.tokens.shape[1]:
        return None
    axes = [axis for axis in range(len(reading.query.shape)) if axis not in reading.attended]
    if len(reading.query.shape) == 3:  # heads are an axis of the input
        axes = [axis for axis in axes if axis == 0]
    batch = np.zeros(len(first), dtype=np.int64)
    for axis in axes:
        batch = batch * reading.query.shape[axis] + reading.query.positions[axis][:, 0]
    groups = [np.flatnonzero(batch == each) for each in np.unique(batch)]
    return np.array(groups) if len({len(each) for each in groups}) == 1 else None


# ------------------------------------------------------------------------------------------------------ scale and mask


def _judge_scale(reading: Reading, context: Context, found: Judgement) -> None:
    core, d_key = reading.core, reading.d_key
    op = _scale_op(reading)
    place = _place(op or core.scores)
    normed = "norm" in reading.query_line.kinds and "norm" in reading.key_line.kinds
    learned = reading.query_line.learned_factor or reading.key_line.learned_factor or _learned_scale(reading)
    if reading.normaliser in ("sum", "none") and reading.factor is None:
        return
    if reading.floored or reading.factor == 0:
        found.mistake("floor division", _place(_floor_op(reading) or op))
        return
    if reading.masked_op is None:
        return
    if reading.head_factors and not learned:
        found.not_understood("Scores of different heads are multiplied by different numbers.")
    if reading.factor is None:
        _unknown_scores(reading, found)
        return
    if reading.softcap:
        found.convention(f"soft cap of {reading.softcap:.4g} on the scores")
    scale = reading.scale
    if scale is None:
        found.not_understood("Parts of the queries are scaled differently.")
        return
    if learned:
        found.convention("the scale is learned")
        return
    name = _scale_name(reading, context, scale)
    if name == "":
        return
    if name == "scale by d_k" and len(_scale_ops(reading)) > 1:
        name = "scaled twice"
    if normed or context.free_scale or (scale == 1 and reading.bias_learned):
        found.convention(f"the scores are multiplied by {scale:.4g}, not by 1/√d_k = {d_key**-0.5:.4g}")
    elif _scaled_late(reading):
        found.mistake("scale after softmax", _place(_late_scale_op(reading)))
    elif name == "no scale" and _published_without_scale(reading):
        found.not_understood(f"{_published_without_scale(reading)} The formula has 1/√d_k = {d_key**-0.5:.4g}.")
    elif name == "scale multiplied" and context.scale_argument:
        found.not_understood("Its caller chooses the scale, by an argument whose meaning is not known here.")
    elif name == "no scale" and context.scaling_caller:
        found.not_understood(f"It does not scale, but its caller does: {context.scaling_caller}. Examine the caller.")
    elif name == "?":
        found.not_understood(f"The scores are multiplied by {scale:.4g}; the formula has 1/√d_k = {d_key**-0.5:.4g}.")
    else:
        chosen = r"[*/]=?\s*((?:self\.)?\w*(?:scal|sqrt|temper)\w*)(?![\w(.])"
        made = None if name in ("scale multiplied", "scaled twice") else _assignment(place, chosen, r".*[\d.)]")
        found.mistake(name, made or place)


def _published_without_scale(reading: Reading) -> str:
    """Return which published attention has no scale, if this looks like it; else ""."""
    core = reading.core
    if reading.bias_from_inputs:
        return "The scores are not scaled, and a term from the inputs is added, as in bottleneck Transformers."
    layers = [op.name for line in reading.lines.values() for op in line.projections]
    heads = _heads(reading)
    if layers and all("conv" in name for name in layers) and (heads is None or heads.shape[1] == 1):
        return "The scores of this feature map are not scaled, as in self-attention GANs and non-local networks."
    same = _close(core.values[core.value_rows][:, 0], core.right)  # of the first query of each matrix
    if same and not reading.key_line.projections and not reading.value_line.projections:
        return "Keys and values are one array and the scores are not scaled, as in Luong's attention."
    return ""


def _unknown_scores(reading: Reading, found: Judgement) -> None:
    names = [
        op.name.strip("_") for op in reading.core.path[1:] if reading.masked_op and op.index <= reading.masked_op.index
    ]
    known = ", ".join(dict.fromkeys(names)) or "none"
    found.not_understood(
        f"Between product and softmax the scores are not only scaled and masked (operations: {known})."
    )


def _scale_name(reading: Reading, context: Context, scale: float) -> str:
    """Return the name of a scale: "" = right, "?" = unknown."""
    d_key, (_, queries, keys) = reading.d_key, reading.core.shape
    heads = _heads(reading)
    count = 1 if heads is None else heads.shape[1]
    widths = [width for width in (context.model_width, count * d_key) if width and width != d_key]
    candidates = [
        ("", d_key**-0.5), ("no scale", 1.0), ("scale by d_k", 1 / d_key), ("scale multiplied", d_key**0.5),
        *(("scale by model width", power) for width in widths for power in (width**-0.5, 1 / width)),
        *(("scale by number of tokens", power) for time in {queries, keys} for power in (time**-0.5, 1 / time)),
        ("floor division", 1 / int(d_key**0.5)), ("power before division", 2 / d_key),
        ("power before division", 0.5 / d_key), ("scale multiplied", float(d_key)),
        *(("scale by number of heads", power) for power in ((count**-0.5, 1 / count) if count > 1 else ())),
    ]  # fmt: skip
    for name, value in candidates:
        if abs(scale - value) <= 1e-3 * value:
            return name
    return "?"


def _scale_ops(reading: Reading) -> list[Op]:
    """Return the multiplications and divisions by a number: on queries and keys, then on the scores."""
    on_scores = [
        op for op in reading.core.path
        if op.name.rstrip("_") in ("mul", "div") and number_of(reading.trace, op) is not None
        and (reading.masked_op is None or op.index <= reading.masked_op.index)
    ]  # fmt: skip
    return [*reading.key_line.scale_ops, *reading.query_line.scale_ops, *on_scores]


def _scale_op(reading: Reading) -> Op | None:
    """Return the last multiplication or division by a number before the softmax."""
    return next(reversed(_scale_ops(reading)), None)


def _floor_op(reading: Reading) -> Op | None:
    return next((op for op in reading.core.path if "floor" in op.name or "div" in op.name), None)


def _learned_scale(reading: Reading) -> bool:
    for op in reading.core.path:
        if op.name.rstrip("_") in ("mul", "div"):
            ops = (reading.trace.ops[source] for source, _ in op.inputs)
            others = [each.index for each in ops if not is_activation(each)]
            if any(root.startswith("parameter") for source in others for root in reading.trace.ops[source].roots):
                return True
    return False


def _late_scale_op(reading: Reading) -> Op | None:
    last = reading.normaliser_ops[-1].index if reading.normaliser_ops else -1
    late = [
        op for op in reading.core.path
        if op.index > last and op.name.rstrip("_") in ("mul", "div") and number_of(reading.trace, op) is not None
    ]  # fmt: skip
    return late[0] if late else None


def _scaled_late(reading: Reading) -> bool:
    op = _late_scale_op(reading)
    number = None if op is None else number_of(reading.trace, op)
    heads = _heads(reading)
    widths = (reading.d_key, reading.d_key * (1 if heads is None else heads.shape[1]))
    return number is not None and any(abs(number[0] - width**-0.5) < 1e-3 for width in widths)


# -------------------------------------------------------------------------------------------------------------- weights


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
        "all scores": n,
    }


def _judge_weights(reading: Reading, found: Judgement) -> None:
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
    over = ""
    groups = _groups(reading)
    for name, numbers in groups.items():
        if _close(_with_extra(reading, scores, numbers, name), first):
            over = name
            break
    softmaxes = [each for each in reading.normaliser_ops if "softmax" in each.name]
    if over == "":
        twice = softmax_over(softmax_over(scores, groups["keys"]), groups["keys"])
        if reading.normalised is None and len(reading.normaliser_ops) > 1 and _close(twice, weights):
            found.mistake("double softmax", _softmax_place(reading.normaliser_ops[-1], True))
        else:
            found.not_understood("The weights are not the softmax of the scores over any one axis.")
        return
    if over != "keys":
        names = {"queries": "softmax over queries", "heads": "softmax over heads", "batch": "softmax over the batch"}
        found.mistake(names.get(over, "softmax over all scores"), _softmax_place(_axis_op(reading)))
    if reading.extra is not None:
        found.convention("attention sink: an additional score in the softmax")
    if reading.normaliser_ops[0].name in ("exp", "exp_") and not _maximum_subtracted(reading):
        found.caution("exp without maximum", op.place)
    if len(softmaxes) > 1 and reading.normalised is not None:
        found.mistake("double softmax", _softmax_place(softmaxes[1], True))
    elif not _close(first, weights) and over == "keys":
        _judge_after_softmax(reading, first, found)


def _axis_op(reading: Reading) -> Op:
    """Return the operation that decides over which axis the weights sum to 1: the softmax, or the sum of powers."""
    first = reading.normaliser_ops[0]
    sums = [op for op in reading.core.path if op.index > first.index and op.name == "sum"]
    return sums[0] if "softmax" not in first.name and sums else first


def _softmax_place(op: Op, repeated: bool = False) -> Place | None:
    """Return the line of a softmax: of the caller or constructor, if that chooses the axis, or of the second call."""
    made = None if repeated else _assignment(op.place, r"(self\.\w+)\(", r".*Softmax\(")
    if made is not None:
        return made
    if op.callers and (repeated or any(word in op.callers[0].code for word in ("axis", "dim"))):
        return op.callers[0]
    return op.place


def _assignment(place: Place | None, used: str, value: str) -> Place | None:
    """Return the one line of a file that gives a name its value, if the name is used in this line; else None."""
    for name in re.findall(used, place.code) if place else ():
        made, file = re.compile(rf"\s*{re.escape(name)}\s*=(?!=){value}"), place.file if place else ""
        lines = [number for number, line in enumerate(linecache.getlines(file), 1) if made.match(line)]
        if len(lines) == 1:
            return Place(file, lines[0])
    return None


def _maximum_subtracted(reading: Reading) -> bool:
    return any(op.name in ("amax", "max", "logsumexp", "sub", "sub_") for op in reading.core.path)


def _with_extra(reading: Reading, scores: Array, groups: Array, name: str) -> Array:
    """Return the softmax of the scores; over keys together with the additional scores, if any."""
    if reading.extra is None or name != "keys":
        return softmax_over(scores, groups)
    joined = np.concatenate([scores, reading.extra], axis=-1)
    rows = np.arange(joined.shape[0] * joined.shape[1]).reshape(*joined.shape[:2], 1)
    return softmax_over(joined, np.broadcast_to(rows, joined.shape))[..., : scores.shape[-1]]


def _close(a: Array, b: Array) -> bool:
    a, b = np.nan_to_num(a), np.nan_to_num(b)
    return a.shape == b.shape and bool(np.all(np.abs(a - b) <= _TOLERANCE * max(1.0, float(np.abs(a).max()))))


def _judge_after_softmax(reading: Reading, softmax: Array, found: Judgement) -> None:
    """Judge what happens to the weights after the softmax."""
    weights = reading.core.weights
    removed = (np.abs(weights) < 1e-9) & (softmax > 1e-9)
    op = next((op for op in reading.core.path if op.index > reading.normaliser_ops[0].index
               and op.name.rstrip("_") in ("mul", "masked_fill", "where", "tril", "triu")), None)  # fmt: skip
    if removed.any() and _close(np.where(removed, 0, softmax), weights):
        found.mistake("mask after softmax", _place(op))
    elif removed.any() and _close(_renormalised(softmax, removed), weights):
        reading.allowed = None if reading.allowed is None else reading.allowed & ~removed
    elif _scaled_late(reading):
        found.mistake("scale after softmax", _place(_late_scale_op(reading)))
    else:
        found.not_understood("After the softmax the weights are changed in an unknown way.")


def _renormalised(softmax: Array, removed: Array) -> Array:
    kept = np.where(removed, 0, softmax)
    return np.asarray(kept / np.maximum(kept.sum(axis=-1, keepdims=True), 1e-30))


def _judge_without_softmax(reading: Reading, found: Judgement) -> None:
    weights = reading.core.weights
    if reading.masked is None:
        found.not_understood("There is no softmax between the scores and the product with the values.")
        return
    scores = np.nan_to_num(reading.masked, neginf=0.0)
    total = scores.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        if _close(np.nan_to_num(scores / total), weights):
            found.mistake("sum instead of softmax", _place(next(iter(reading.normaliser_ops), None)))
            return
    clean = np.nan_to_num(weights, neginf=0.0)
    if _close(scores, clean):
        same = {op.place for op in reading.core.path} | {reading.core.context.place}
        found.mistake("no softmax", same.pop() if len(same) == 1 else None)
    else:
        found.not_understood("There is no softmax between the scores and the product with the values.")


def _judge_half_precision(reading: Reading, found: Judgement) -> None:
    for op in reading.normaliser_ops[:1]:
        dtype = str(getattr(op.values[0], "dtype", ""))
        product = str(getattr(reading.core.scores.values[-1], "dtype", ""))
        if (any(half in dtype for half in ("float16", "bfloat16")) and dtype != product) or (
            "16" in product
            and "32" in str(next((each.outputs[0].dtype for each in reading.trace.ops if each.name == "input"), ""))
        ):
            found.caution("half-precision softmax", op.place)


# --------------------------------------------------------------------------------------------------------- mask, causal


def mask_pattern(reading: Reading) -> Array | None:
    """Return which keys the queries attend to, `[n, query, key]`, from the weights and the scores."""
    if reading.allowed is None:
        return None
    return np.asarray(reading.allowed & (np.nan_to_num(reading.core.weights, nan=1.0) != 0))


def time_mask(reading: Reading) -> Array | None:
    """Return which times attend to which, `[query time, key time]`, if it is the same in every head and sequence."""
    pattern = mask_pattern(reading)
    if pattern is None or not reading.attended:
        return None
    size_q, size_k = int(reading.query_times.max()) + 1, int(reading.key_times.max()) + 1
    seen = np.full((size_q, size_k), -1)
    for n, i, j in np.ndindex(*pattern.shape):
        at = reading.query_times[n, i], reading.key_times[n, j]
        if min(at) < 0:
            continue
        if seen[at] >= 0 and seen[at] != pattern[n, i, j]:
            return None
        seen[at] = pattern[n, i, j]
    return None if (seen < 0).any() else seen.astype(bool)


# --------------------------------------------------------------------------------------------------------- the formula


def _compare(reading: Reading, found: Judgement) -> None:
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
    actual = _context_rows(reading)
    error = max(_distance(weights, core.weights), _distance(context, actual))
    found.difference = max(found.difference, error)
    if error <= _TOLERANCE:
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


# --------------------------------------------------------------------------------------------------------------- output


def judge_output(subject: RepeatedCall, reading: Reading, found: Judgement, seed: int) -> None:
    """Judge how the context reaches the result: one row per token, without mixing tokens."""
    leaf = _output_leaf(reading)
    if leaf is None:
        found.not_understood("No part of its result has one row per token.")
        return
    number, codes, expected = leaf
    reached = _context_tokens(subject, reading, codes, number, seed)
    if reached is None:
        found.not_understood("Its result changes in an unknown way with the context.")
        return
    if np.array_equal(reached, expected):
        return
    times = reading.core.spread(reading.query_times, tuple(reading.core.context.outputs[0].shape))
    mixing = first_mixing_op(reading.trace, reading.core.context, times, len(reading.trace.ops))
    if mixing is not None:
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
        if (
            source is None
            or reading.core.context.index > source[0]
            or not np.issubdtype(to_float(leaf).dtype, np.floating)
        ):
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
    token, mixed = np.zeros(base.shape[:-1], np.int64), np.zeros(base.shape[:-1], bool)
    touched = np.zeros(base.shape[:-1], bool)
    for digit in range(max(int(codes.max()).bit_length(), 1)):
        seen = []
        for state in (0, 1):
            chosen = ((rows >> digit) & 1) == state
            override = partial(_shift_rows, core, chosen, seed)
            trace = subject.trace(overrides={core.context.index: override})
            if len(trace.results) != len(results):
                return None
            moved = np.abs(np.nan_to_num(to_float(trace.results[number][0]) - base)) > 1e-4 * max(
                1.0, float(np.nanmax(np.abs(base)))
            )
            seen.append(moved.any(axis=-1))
        mixed |= seen[0] & seen[1]
        touched |= seen[0] | seen[1]
        token += seen[1].astype(np.int64) << digit
    return np.where(mixed, -2, np.where(touched, token, NO_TOKEN))


def _shift_rows(core: Core, chosen: Array, seed: int, result: Any) -> Any:
    """Return the context with noise added to some rows."""
    noise = np.random.default_rng([seed, 5]).normal(0, 1, tuple(result.shape))
    return result + in_library_of(result, noise * core.spread(chosen, tuple(result.shape)))
