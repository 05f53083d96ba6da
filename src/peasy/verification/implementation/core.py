"""Attention found in a trace: the product of queries and keys, the way to the weights, the product with the values."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peasy.verification.implementation.trace import INPUT, LAYOUTS, PRODUCTS, Op, Trace, to_float

Array = np.ndarray
_REDUCTIONS = frozenset({"sum", "mean", "amax", "max", "logsumexp", "amin", "min", "any", "all", "norm"})
NO_TOKEN, MIXED = -1, -2


@dataclass(eq=False)
class Core:
    """One attention of a trace, by operation index; queries are rows, and the product with the values sums over keys.

    Arrays: `left` `[n, query, d]`, `right` `[n, key, d]`; `index_of[op]` says for every element of an operation's
    result which element of `[n, query, key]` it belongs to, -1 = none.
    """

    scores: Op
    context: Op
    path: list[Op]
    weights_operand: int
    swapped: bool
    left: Array
    right: Array
    values: Array
    weights: Array
    value_rows: Array
    context_rows: Array
    index_of: dict[int, Array] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape `[n, query, key]`."""
        return (*self.left.shape[:2], self.right.shape[1])

    def covers(self, op: Op) -> bool:
        """Return whether a result has a number for every query and key."""
        index = self.index_of.get(op.index)
        return index is not None and int((index >= 0).sum()) >= int(np.prod(self.shape))

    def context_view(self, array: Array) -> Array:
        """Return an array of the context's shape as `[n, row, d]`, without a copy."""
        view = array.reshape(-1, *(1, 1, *array.shape)[-2:])
        return view if self.weights_operand == 0 else view.swapaxes(-1, -2)

    def spread(self, numbers: Array, shape: tuple[int, ...]) -> Array:
        """Return an array of the context's shape with numbers `[n, query]` or `[n, query, d]` in its rows."""
        array = np.zeros(shape, numbers.dtype)
        view = self.context_view(array)
        rows = np.zeros((view.shape[0] * view.shape[1], *numbers.shape[2:]), numbers.dtype)
        rows[self.context_rows] = numbers
        view[...] = rows.reshape(*view.shape[:2], -1)
        return array

    def gather(self, op: Op, value: object) -> Array:
        """Return a recorded result in the order `[n, query, key]`; NaN where it has no element."""
        flat, index = np.full(int(np.prod(self.shape)), np.nan), self.index_of[op.index].reshape(-1)
        known = index >= 0
        flat[index[known]] = to_float(value).reshape(-1)[known]
        return flat.reshape(self.shape)


def is_activation(op: Op) -> bool:
    """Return whether a result depends on the inputs."""
    return any(root.startswith(INPUT) for root in op.roots)


COPIES = ("repeat", "tile", "index", "index_select", "expand", "cat")


def grows(op: Op) -> bool:
    """Return whether a result has more numbers than each input."""
    sizes = [int(np.prod(tuple(value.shape))) for value in (op.outputs[0], *op.values)]
    return len(sizes) > 1 and sizes[0] > max(sizes[1:])


def _operands(op: Op) -> tuple[tuple[int, int], tuple[int, int]]:
    return op.inputs[-2], op.inputs[-1]


def attention_products(trace: Trace) -> list[Op]:
    """Return the products of two activations."""
    return [
        op for op in trace.ops
        if op.name in PRODUCTS and all(is_activation(trace.ops[source]) for source, _ in _operands(op))
    ]  # fmt: skip


def find_cores(trace: Trace) -> list[Core]:
    """Return every pair of products in which the first leads, without another product, to an operand of the second."""
    products = attention_products(trace)
    numbers, cores = {op.index for op in products}, []
    for context in products:
        for operand, (source, _) in enumerate(_operands(context)):
            nearest = [op for op in trace.ancestors(source, PRODUCTS) if op.index in numbers]
            if len(nearest) == 1 and nearest[0].index != context.index:
                core = _build(trace, nearest[0], context, operand)
                if core is not None:
                    cores.append(core)
    return cores


def _path(trace: Trace, start: Op, end: int) -> list[Op]:
    """Return the operations between a product and a later record, both included, in order."""
    later = {start.index}
    for op in trace.ops[start.index + 1 :]:
        if any(source in later for source, _ in op.inputs) and (op.name not in PRODUCTS):
            later.add(op.index)
    before = {op.index for op in trace.ancestors(end, PRODUCTS)}
    return [op for op in trace.ops if op.index in later & before]


def as_batch(value: object, left: bool) -> Array:
    """Return an operand of a product as `[n, rows, d]`, with the summed axis last."""
    array = to_float(value)
    if array.ndim == 1:
        return array[None, None]
    array = array[None] if array.ndim == 2 else array.reshape(-1, *array.shape[-2:])
    return array if left else array.swapaxes(-1, -2)


def _build(trace: Trace, scores: Op, context: Op, operand: int) -> Core | None:
    left, right = as_batch(scores.values[-2], True), as_batch(scores.values[-1], False)
    if len(left) != len(right):
        return None
    source, number = _operands(context)[operand]
    path = _path(trace, scores, source)
    index_of = {number: index for (number, output), index in index_maps(path).items() if output == 0}
    index = index_of.get(source)
    if index is None or number != 0:
        return None
    count, queries, keys = len(left), left.shape[1], right.shape[1]
    index = as_batch(index, operand == 0).astype(np.int64)
    values = as_batch(context.values[-2 + (1 - operand)], operand == 1)
    values = values.swapaxes(-1, -2)  # [n, key, d_value]: the summed axis is the rows of the values
    weights = as_batch(context.values[-2 + operand], operand == 0)
    if (index < 0).any() or index.size != count * queries * keys:
        return None
    n, i, j = np.unravel_index(index, (count, queries, keys))
    varies_i, varies_j = (bool((axis != axis[..., :1]).any()) for axis in (i, j))
    swapped = varies_i and not varies_j
    if swapped:  # the sum over keys runs along the rows of the product: its left operand holds the keys
        left, right = right, left
        index_of = {op: _transpose_index(each, count, queries, keys) for op, each in index_of.items()}
        i, j, queries, keys = j, i, keys, queries
    matrix, rows, columns = np.indices(index.shape)
    shape = (count, queries, keys)
    value_rows, context_rows = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    value_rows[n, i, j] = matrix * values.shape[1] + columns
    context_rows[n, i, j] = matrix * weights.shape[1] + rows
    gathered = np.zeros(shape)
    gathered[n, i, j] = weights
    if (context_rows != context_rows[..., :1]).any():
        return None
    return Core(
        scores, context, path, operand, swapped, left, right, values.reshape(-1, values.shape[-1]), gathered,
        value_rows, context_rows[..., 0], index_of,
    )  # fmt: skip


def _transpose_index(index: Array, count: int, rows: int, columns: int) -> Array:
    n, i, j = np.unravel_index(np.maximum(index, 0), (count, rows, columns))
    return np.where(index < 0, -1, (n * columns + j) * rows + i)


def index_maps(path: list[Op]) -> dict[tuple[int, int], Array]:
    """Return for each result of a path which element of the first result each of its elements comes from."""
    first = path[0]
    shape = tuple(first.outputs[0].shape)
    maps: dict[tuple[int, int], Array] = {(first.index, 0): np.arange(int(np.prod(shape))).reshape(shape)}
    for op in path[1:]:
        inputs = {number: maps[source] for number, source in enumerate(op.inputs) if source in maps}
        if inputs:
            results = replay_op(op, inputs)
            maps |= {(op.index, number): result for number, result in enumerate(results) if result is not None}
    return maps


def replay_op(op: Op, inputs: dict[int, Array]) -> list[Array | None]:
    """Return the indices of an operation's results from the indices of its inputs, by number; [] if unknown."""
    return _replay_layout(op, inputs) if op.name in LAYOUTS else _replay_pointwise(op, inputs)


def _replay_pointwise(op: Op, inputs: dict[int, Array]) -> list[Array | None]:
    shape = tuple(op.outputs[0].shape) if op.outputs else ()
    if op.name in _REDUCTIONS:
        return []
    long = [size for size in shape if size != 1]
    same = (index.reshape(shape) for index in inputs.values() if [n for n in index.shape if n != 1] == long)
    return [next(same, None)]


def _replay_layout(op: Op, inputs: dict[int, Array]) -> list[Array | None]:
    """Repeat a view, copy or concatenation on the indices; elements of other tensors are -1."""
    if op.name == "assemble":
        return _assembled(op, inputs)
    if op.name == "copy_":
        return [inputs.get(1, inputs.get(0))]
    if op.replay is None:
        return []
    arrays = {number: _index_array(inputs.get(number), value) for number, value in enumerate(op.values)}
    try:
        result = op.replay(arrays) if op.name not in ("_to_copy", "clone", "lift_fresh") else arrays[0]
    except Exception:
        return []
    results = result if isinstance(result, list | tuple) else [result]
    return [each.numpy() if hasattr(each, "numpy") else np.array(each) for each in results]


def _index_array(index: Array | None, value: Any) -> object:
    """Return indices in the library of a recorded value; -1 for another tensor of numbers, itself for whole numbers."""
    if isinstance(value, np.ndarray):
        other = np.full(value.shape, -1) if value.dtype.kind == "f" else value
        return other if index is None else index.copy()
    import torch

    if index is None:
        return torch.full(tuple(value.shape), -1) if value.is_floating_point() else value
    return torch.from_numpy(index.copy())


def _assembled(op: Op, inputs: dict[int, Array]) -> list[Array | None]:
    shape = tuple(op.outputs[0].shape)
    same = [index for index in inputs.values() if index.shape == shape]
    return [same[-1]] if len(same) == 1 else []
