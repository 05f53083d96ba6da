"""LLVM IR of the innermost kernel loops, emitted so that all accumulators stay in registers.

A tile computes the dot products of one or two left rows with four right rows. Every pair is summed in the same order
in every tile: eight partial sums, added at the end as ((0+1)+(2+3))+((4+5)+(6+7)), so the bits of a pair do not depend
on the rest of the tile. An accumulate adds weighted vectors one after the other, for one or two rows of weights.
"""

from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped,unused-ignore]
from llvmlite.ir import IRBuilder as Builder  # type: ignore[import-untyped,unused-ignore]
from llvmlite.ir import Value
from numba import types
from numba.extending import intrinsic

_Add = Callable[[Value, Value], Value]
TaskPointer = Any
"""Pointer to the 64-bit words of a task; only numba has a type for it."""

INT64, FLOAT32 = ir.IntType(64), ir.FloatType()
TILE_COLUMNS = 4
"""Right rows per tile."""

_VECTOR_STEP = {True: 16, False: 8}
"""Elements per vector step: integers (int16 left, int8 right) or float32."""

_PREFETCH_BYTES = 1024
"""Prefetch distance of interleaved rows, in bytes."""


def make_tile(rows: int, integer: bool, interleaved: bool) -> Any:
    """Return `tile(left, left_row, right, right_row, length, sums)`: addresses and row strides in bytes.

    `length` counts elements: a positive multiple of the vector step. If the right rows are `interleaved`, a step of the
    first row is followed by the same step of the second, and so on, so that they are read in one stream.
    """

    @intrinsic
    def tile(typing, left, left_row, right, right_row, length, sums):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Builder, signature: Any, args: Any) -> Any:
            _emit_tile(builder, rows, integer, interleaved, *args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return tile


def make_accumulate(rows: int, vectors: int) -> Any:
    """Return `mix(weights, weights_row, values, value_row, count, totals, totals_row)`: addresses and row strides.

    Adds `count` weighted rows of values to each row of totals, which has `vectors` times eight elements.
    """

    @intrinsic
    def mix(typing, weights, weights_row, values, value_row, count, totals, totals_row):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Builder, signature: Any, args: Any) -> Any:
            _emit_accumulate(builder, rows, vectors, *args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return mix


def _make_next_ticket() -> Any:
    """Return an intrinsic that atomically increments the task counter shared by all threads."""

    @intrinsic
    def take(typing, counter):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Builder, signature: Any, args: Any) -> Any:
            return builder.atomic_rmw("add", args[0], INT64(1), "monotonic")

        return types.int64(types.CPointer(types.int64)), codegen

    return take


next_ticket = _make_next_ticket()


def _pointer(kind: types.Type) -> Any:
    """Return an intrinsic that casts an address to a typed pointer."""

    @intrinsic
    def point(typing, address):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Builder, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), codegen

    return point


int64_pointer, float32_pointer = _pointer(types.int64), _pointer(types.float32)


def _reinterpret(source: types.Type, target: types.Type) -> Any:
    """Return an intrinsic that reinterprets 32 bits as another type."""

    @intrinsic
    def reinterpret(typing, bits):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Builder, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), codegen

    return reinterpret


float_to_bits, bits_to_float = _reinterpret(types.float32, types.int32), _reinterpret(types.int32, types.float32)


# Code emission.


def _emit_tile(
    builder: Builder,
    rows: int,
    integer: bool,
    interleaved: bool,
    left: Value,
    left_row: Value,
    right: Value,
    right_row: Value,
    length: Value,
    sums: Value,
) -> None:
    kind = ir.VectorType(ir.IntType(32) if integer else FLOAT32, 8)
    lefts = _row_addresses(builder, left, left_row, rows)
    rights = _row_addresses(builder, right, INT64(16 if integer else 32) if interleaved else right_row, TILE_COLUMNS)
    zeros = [ir.Constant(kind, None)] * (rows * TILE_COLUMNS)

    def step(at: Value, totals: list[Value]) -> list[Value]:
        return _emit_step(builder, integer, interleaved, lefts, rights, at, totals)

    partial_sums = _emit_loop(builder, length, _VECTOR_STEP[integer], zeros, step)
    for row in range(rows):
        row_sums = _horizontal_sum(builder, integer, partial_sums[row * TILE_COLUMNS : (row + 1) * TILE_COLUMNS])
        address = builder.add(sums, INT64(row * TILE_COLUMNS * 4))
        builder.store(row_sums, builder.inttoptr(address, row_sums.type.as_pointer()), align=4)


def _emit_accumulate(
    builder: Builder,
    rows: int,
    vectors: int,
    weights: Value,
    weights_row: Value,
    values: Value,
    value_row: Value,
    count: Value,
    totals: Value,
    totals_row: Value,
) -> None:
    vector_type, weight_rows = ir.VectorType(FLOAT32, 8), _row_addresses(builder, weights, weights_row, rows)
    pointers = [
        builder.inttoptr(builder.add(base, INT64(32 * vector)), vector_type.as_pointer())
        for base in _row_addresses(builder, totals, totals_row, rows)
        for vector in range(vectors)
    ]

    def step(at: Value, totals: list[Value]) -> list[Value]:
        row = builder.add(values, builder.mul(at, value_row))
        value_vectors = [_load(builder, row, INT64(8 * vector), 32, integer=False) for vector in range(vectors)]
        broadcast = [_broadcast_load(builder, base, at) for base in weight_rows]
        pairs = [(weight, value) for weight in broadcast for value in value_vectors]
        return [_fma(builder, weight, value, total) for (weight, value), total in zip(pairs, totals, strict=True)]

    initial = [builder.load(pointer, align=4) for pointer in pointers]
    for pointer, total in zip(pointers, _emit_loop(builder, count, 1, initial, step), strict=True):
        builder.store(total, pointer, align=4)


def _row_addresses(builder: Builder, base: Value, stride: Value, count: int) -> list[Value]:
    return [builder.add(base, builder.mul(stride, INT64(row))) for row in range(count)]


def _emit_loop(
    builder: Builder, length: Value, step: int, first: list[Value], body: Callable[[Value, list[Value]], list[Value]]
) -> list[Value]:
    """Emit a loop of `body(at, values)` for at = 0, step, 2 step, ... below `length` (at least once)."""
    start, loop, end = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("looped")
    builder.branch(loop)
    builder.position_at_end(loop)
    at, values = builder.phi(INT64), [builder.phi(value.type) for value in first]
    results = body(at, values)
    following = builder.add(at, INT64(step))
    for phi, before, after in zip([at, *values], [INT64(0), *first], [following, *results], strict=True):
        phi.add_incoming(before, start)
        phi.add_incoming(after, loop)
    builder.cbranch(builder.icmp_signed("<", following, length), loop, end)
    builder.position_at_end(end)
    return results


def _broadcast_load(builder: Builder, base: Value, at: Value) -> Value:
    """Load one float and broadcast it to eight lanes."""
    pointer = builder.inttoptr(builder.add(base, builder.mul(at, INT64(4))), FLOAT32.as_pointer())
    undefined = ir.Constant(ir.VectorType(FLOAT32, 8), ir.Undefined)
    scalar = builder.insert_element(undefined, builder.load(pointer, align=4), ir.IntType(32)(0))
    return _shuffle(builder, scalar, scalar, [0] * 8)


def _emit_step(
    builder: Builder,
    integer: bool,
    interleaved: bool,
    lefts: list[Value],
    rights: list[Value],
    at: Value,
    totals: list[Value],
) -> list[Value]:
    """Emit one vector step: load from every row, multiply each pair, add to the totals."""
    right_bits, left_bits = (8, 16) if integer else (32, 32)
    right_at = builder.mul(at, INT64(TILE_COLUMNS)) if interleaved else at
    right_vectors = [_load(builder, base, right_at, right_bits, integer) for base in rights]
    if interleaved:
        _prefetch(
            builder, builder.add(rights[0], builder.mul(right_at, INT64(right_bits // 8))), lines=1 if integer else 2
        )
    if integer:
        right_vectors = [builder.sext(vector, ir.VectorType(ir.IntType(16), 16)) for vector in right_vectors]
    new_totals = []
    for row, base in enumerate(lefts):
        left = _load(builder, base, at, left_bits, integer)
        for column, right in enumerate(right_vectors):
            total = totals[row * TILE_COLUMNS + column]
            new_totals.append(
                _multiply_add_pairs(builder, left, right, total) if integer else _fma(builder, left, right, total)
            )
    return new_totals


def _load(builder: Builder, base: Value, at: Value, bits: int, integer: bool) -> Value:
    kind = ir.VectorType(ir.IntType(bits) if integer else FLOAT32, _VECTOR_STEP[integer])
    address = builder.add(base, builder.mul(at, INT64(bits // 8)))
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _prefetch(builder: Builder, address: Value, lines: int) -> None:
    """Prefetch cache lines ahead; past the end of an array this has no effect."""
    for line in range(lines):
        pointer = builder.inttoptr(builder.add(address, INT64(_PREFETCH_BYTES + 64 * line)), ir.IntType(8).as_pointer())
        int32 = ir.IntType(32)
        _call_intrinsic(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, int32(0), int32(3), int32(1))


def _multiply_add_pairs(builder: Builder, one: Value, other: Value, total: Value) -> Value:
    """Add sixteen int16 products, pairwise summed in int32: one instruction (pmaddwd) with AVX2."""
    wide = ir.VectorType(ir.IntType(32), 16)
    if binding.get_host_cpu_features().get("avx2"):
        return builder.add(total, _call_intrinsic(builder, "llvm.x86.avx2.pmadd.wd", total.type, one, other))
    products = builder.mul(builder.sext(one, wide), builder.sext(other, wide))
    return builder.add(total, _add_neighbours(builder, products, products, range(0, 16, 2), builder.add))


def _fma(builder: Builder, one: Value, other: Value, total: Value) -> Value:
    return _call_intrinsic(builder, "llvm.fma.v8f32", total.type, one, other, total)


def _call_intrinsic(builder: Builder, name: str, kind: ir.Type, *args: Value) -> Value:
    known = builder.module.globals.get(name)
    function = known or ir.Function(builder.module, ir.FunctionType(kind, [value.type for value in args]), name)
    return builder.call(function, args)


def _horizontal_sum(builder: Builder, integer: bool, vectors: list[Value]) -> Value:
    """Horizontal sum of four vectors of eight: neighbours, neighbours again, then the two halves."""
    add = builder.add if integer else builder.fadd
    evens = [0, 2, 8, 10, 4, 6, 12, 14]
    first, second = (_add_neighbours(builder, vectors[i], vectors[i + 1], evens, add) for i in (0, 2))
    both = _add_neighbours(builder, first, second, evens, add)
    return add(_shuffle(builder, both, both, range(4)), _shuffle(builder, both, both, range(4, 8)))


def _add_neighbours(builder: Builder, one: Value, other: Value, evens: Iterable[int], add: _Add) -> Value:
    odds = [index + 1 for index in evens]
    return add(_shuffle(builder, one, other, evens), _shuffle(builder, one, other, odds))


def _shuffle(builder: Builder, one: Value, other: Value, indices: Iterable[int]) -> Value:
    lanes = list(indices)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(one, other, mask)
