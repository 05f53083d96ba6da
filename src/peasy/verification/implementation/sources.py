"""Queries, keys and values: their inputs and layers, their tokens, and which query heads share a key head."""

import ast
import re
from collections.abc import Iterable

import numpy as np

from peasy.verification.implementation.core import COPIES, NO_TOKEN, Array, grows
from peasy.verification.implementation.judgement import (
    Context,
    Judgement,
    heads_of,
    parameters_around,
    place_of,
    statement,
)
from peasy.verification.implementation.lineage import columns_of, first_mixing_op, lineage, parameters_of
from peasy.verification.implementation.names import projection_role, role_of
from peasy.verification.implementation.reading import Reading
from peasy.verification.implementation.trace import PARAMETER, Op, Place


def judge_sources(reading: Reading, context: Context, found: Judgement) -> None:
    """Judge which inputs and which layers queries, keys and values come from."""
    sources = _source_roles(reading, context, found)
    product, place = reading.core.scores, place_of(reading.core.scores)
    if sources[1] == "value":
        own = sources[2] == "value" and reading.key_line.projections
        place = _operand_place(reading, "key") if own else _place_that_names(reading, "value")
    if sources in (("query", "value", "key"), ("query", "value", "query")):
        found.mistake("keys and values swapped", place)
    elif sources[:2] == ("key", "query") and not reading.core.swapped:
        found.mistake("KQᵀ instead of QKᵀ", place)
    elif sources[:2] == ("key", "query") and len(context.input_roles) == 1 and _normalised(reading):
        found.convention("the layer named key makes the queries, the layer named query the keys")
    elif sources[:2] == ("key", "query"):
        found.mistake("weights transposed", place_of(reading.core.context))
    elif sources[1:] == ("value", "value"):
        found.mistake("keys from the values", place)
    elif sources[:2] == ("query", "query"):
        found.mistake("keys from the queries", _operand_place(reading, "key") or place_of(product))
    elif sources[:2] == ("key", "key"):
        found.mistake("queries from the keys", _operand_place(reading, "query") or place_of(product))
    if sources[2] == "query" and sources[1] != "value":
        found.mistake("values from the queries", _operand_place(reading, "value"))
    elif sources[2] == "key" and sources[1] == "key":
        found.mistake("values from the keys", _operand_place(reading, "value"))


def _place_that_names(reading: Reading, role: str) -> Place | None:
    """Return the line that takes the keys from something with another role: of the product, or before it.

    A helper only takes what it is given; a line that makes what its own names say is not meant.
    """
    before = sorted([*reading.key_line.ops, *reading.key_line.projections], key=lambda op: -op.index)
    for op in (reading.core.scores, *before):
        for place in (op.place, *op.callers):
            made = re.findall(r"[^\W\d]\w*", statement(place).rpartition(" = ")[0])
            if role in _roles_taken(place) and {*map(role_of, made)} != {role}:
                return place
    return place_of(reading.core.scores)


def _normalised(reading: Reading) -> bool:
    """Return whether the weights sum to 1 over the axis that the product with the values sums over."""
    return bool(np.allclose(np.nan_to_num(reading.core.weights).sum(-1), 1, atol=1e-3))


def _source_roles(reading: Reading, context: Context, found: Judgement) -> tuple[str, ...]:
    """Return what queries, keys and values are made from: by their inputs, and by layers where inputs do not tell."""
    inputs = [context.input_roles.get(rows.input, "") for rows in (reading.query, reading.key, reading.value)]
    layers = _layer_roles(reading, context, found)
    joined = (reading.key.tokens == NO_TOKEN).any() and (reading.value.tokens == NO_TOKEN).any()
    if joined and len(context.input_roles) > 1:
        found.convention("keys and values of several sources in one sequence")
        return tuple(layers)
    if len(context.input_roles) == 1 or not set(inputs) & {"query", "key", "value", "source"}:
        return tuple(layers)
    roles = [("key", "key", "value")[i] if role == "source" else role for i, role in enumerate(inputs)]
    if inputs[1] == inputs[2] and "value" not in context.input_roles.values():  # one input for keys and values
        roles[2] = "value" if roles[2] == "key" else roles[2]
        if inputs[1] != inputs[0] and all(layers):
            roles[1:] = layers[1:]
    if inputs[1] == inputs[2] == "value" and "key" not in context.input_roles.values():
        roles[1] = "key"  # one array for keys and values, named after the values
    if all(layers) and len({*layers}) == 2 and len({*roles}) == 3:  # one layer makes two of them, another one nothing
        return tuple(layers)
    return tuple(roles)


def _swapped_call(op: Op) -> Place | None:
    """Return the line that gives an array named as values for the keys, and one named as keys for the values."""
    names = ["query", "key", "value"] if "scaled_dot_product_attention" in statement(op.place) else []
    for place in (op.place, *op.callers):
        for node in ast.walk(ast.parse(statement(place))):
            given = [role_of(ast.unparse(each)) for each in node.args] if isinstance(node, ast.Call) else []
            pairs = {*zip(given, map(role_of, names), strict=False)}
            if {("key", "value"), ("value", "key")} <= pairs:
                return place
        names = [name for name in parameters_around(place) if name != "self"]
    return None


def _operand_place(reading: Reading, part: str) -> Place | None:
    """Return the line that makes an operand of another layer, or from another operand, or that takes it as it is.

    Where a helper makes all operands, it is the helper's caller that chose.
    """
    others = [line for name, line in reading.lines.items() if name != part]
    known = [op for line in others for op in (*line.projections, *line.ops)]
    line = reading.lines[part]
    own = [*line.projections[-1:], *sorted(line.ops, key=lambda op: op.index)]
    product = (reading.core.context if part == "value" else reading.core.scores).place
    first = next((op for op in own if op not in known and op.place not in (None, product)), None)
    if first is None:
        return None if part in _roles_taken(product) else product  # it takes what another line chose
    places, taken = (first.place, *first.callers), {each for op in known for each in (op.place, *op.callers)}
    return next((place for place in places if place not in taken and not _is_given(place, part)), places[-1])


def _is_given(place: Place | None, role: str) -> bool:
    """Return whether a line uses a parameter of its function with this role: the caller chose it."""
    return role in _roles_taken(place, parameters_around(place))


def _roles_taken(place: Place | None, names: list[str] | None = None) -> set[str]:
    """Return the roles of the names, or of these names, that a statement uses, not of those that it makes."""
    text = statement(place)
    found = re.findall(r"[^\W\d]\w*", text.partition(" = ")[2] or text)
    found = [name for name in found if names is None or name in names]
    return {*map(role_of, found), *(projection_role([name]) for name in found)}


def _layer_roles(reading: Reading, context: Context, found: Judgement) -> list[str]:
    """Return the roles of queries, keys and values from the names of their layers, or from slices of one layer."""
    names = [parameters_of(reading.trace, line.projections) for line in reading.lines.values()]
    roles = [projection_role(each) for each in names]
    if not all(names):
        return ["", "", ""]
    if len({tuple(each) for each in names}) == 3:
        return roles if len({*roles} - {""}) == 3 else ["", "", ""]
    unused = {"query", "key", "value"} & {
        projection_role([name]) for name in context.weights if name not in {n for each in names for n in each}
    }
    if unused and all(roles):
        return roles
    if len({tuple(each) for each in names}) == 2 and (idle := idle_weights(reading, context.weights)):
        found.not_understood(f"One layer makes two of queries, keys and values, and {', '.join(idle)} has no effect.")
    if names[1] == names[2]:
        return _slices(reading, names, found)
    if names[0] == names[1] and all(roles):
        found.convention("one layer makes both queries and keys")
    return ["", "", ""]


def idle_weights(reading: Reading, weights: Iterable[str]) -> list[str]:
    """Return the weights that no result depends on."""
    reached = {root for _, source in reading.trace.results if source for root in reading.trace.ops[source[0]].roots}
    return [name for name in weights if f"{PARAMETER}:{name}" not in reached]


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
        parts = ["query", "key", "value"]
        firsts = {int(columns[i][0]) for i in fused} | {int(np.setdiff1d(np.arange(width), used)[0])}
        at = sorted(firsts).index(int(columns[same[0][0]][0]))  # which of the parts, in their usual order
        parts[same[0][0]] = parts[same[0][1]] = parts[fused[min(at, len(fused) - 1)]]
        return parts
    order = sorted(fused, key=lambda i: int(columns[i][0]))
    if fused[-2:] == [1, 2] and order.index(1) > order.index(2) and (place := _swapped_call(core.scores)):
        found.mistake("keys and values swapped", place)
    text = ", ".join(("queries", "keys", "values")[i] for i in order)
    name = names[2][0].removesuffix(".weight") or "one layer"
    found.convention(f"{name} makes {text}, in this order")
    return ["", "", ""]


def judge_tokens(reading: Reading, found: Judgement) -> bool:
    """Judge whether each row belongs to one token, and every head sees all tokens; False if it cannot go on."""
    for part, rows in reading.rows.items():
        if not rows.input:
            found.not_understood(f"The {_PLURALS[part]} do not depend on an input.")
            return False
        if rows.mixed or not _covers_tokens(reading, part):
            found.mixed = True
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
            found.mistake("scores between heads", place_of(reading.core.scores))
        else:
            found.not_understood("There is only one query and one key.")
        return False
    if not _on_a_grid(reading):
        found.not_understood("The tokens of one head are not those of an axis of the input, nor of a window.")
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


def _on_a_grid(reading: Reading) -> bool:
    """Return whether the keys of each matrix are all combinations of some positions along each axis."""
    key = reading.key
    for row in key.tokens:
        known = np.unique(row[row != NO_TOKEN])
        if np.prod([len(np.unique(at)) for at in np.unravel_index(known, key.shape)]) != len(known):
            return False
    return True


def _same_tokens(reading: Reading) -> bool:
    """Return whether key and value of one column have the same position, in the same sequence and head."""
    values = reading.value.positions.reshape(len(reading.value.positions), -1)[:, reading.core.value_rows]
    keys = reading.key.positions[:, :, None, :]
    if len(values) != len(keys):
        return True
    known = (values >= 0) & (keys >= 0)
    sizes = zip(reading.query.shape, reading.key.shape, strict=False)
    grouped = {axis for axis, (queries, own) in enumerate(sizes) if queries != own} - {*reading.attended}
    axes = [axis for axis in range(len(keys)) if axis not in grouped]
    return not bool((known & (values != keys))[axes].any())


def judge_operand_kinds(reading: Reading, context: Context, found: Judgement) -> None:
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


def judge_groups(reading: Reading, found: Judgement) -> None:
    """Judge grouped queries: which query heads share a key head and a value head."""
    keys, values = reading.core.right, reading.core.values[reading.core.value_rows[:, 0]]
    heads = heads_of(reading)
    if _tiled_axis(reading):
        found.mistake("kv heads tiled", _repeating_place(reading, "key"))
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
        in_pairs = len({(key, values[n].tobytes()) for key, n in zip(shared, row, strict=True)}) == groups
        neighbours = shared == [head // size * size for head in range(len(row))]
        if neighbours and in_pairs:
            found.convention(f"grouped-query attention: {groups} key/value heads for {len(row)} query heads")
        elif neighbours or shared == [head % groups for head in range(len(row))]:
            found.mistake("kv heads tiled", _repeating_place(reading, "value" if neighbours else "key"))
        else:
            found.not_understood("Query heads share key heads in an unknown order.")
        return


def _repeating_place(reading: Reading, part: str) -> Place | None:
    """Return the line that repeats keys or values for the heads of a group."""
    grown = [op for op in reading.lines[part].ops if op.name in COPIES and grows(op)]
    return place_of(min(grown, key=lambda op: (COPIES.index(op.name), -op.index), default=None))


def _tiled_axis(reading: Reading) -> bool:
    """Return whether heads are an axis of the inputs, and a query head n takes the key head n modulo their number."""
    axes = [axis for axis in (1, 2) if len(reading.query.shape) == 3 and axis not in reading.attended]
    for axis in axes:
        queries, keys = reading.query.shape[axis], reading.key.shape[axis]
        at = reading.query.positions[axis][:, :, None]
        if queries > keys > 1 and queries % keys == 0 and (at >= 0).all():
            return bool((at % keys == reading.key.positions[axis][:, None, :]).all())
    return False
