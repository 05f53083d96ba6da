"""LLVM IR of the innermost kernel loops, emitted so that all accumulators stay in registers.

A tile computes the dot products of one or two left rows with four right rows. Every pair is summed in the same order
in every tile: eight partial sums, added at the end as ((0+1)+(2+3))+((4+5)+(6+7)), so the bits of a pair do not depend
on the rest of the tile. An accumulate adds weighted vectors one after the other, for one or two rows of weights.
"""

from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped,unused-ignore]
from numba import types
from numba.extending import intrinsic

WORD, NUMBER = ir.IntType(64), ir.FloatType()
COLUMNS = 4
"""Right rows per tile."""

STEP = {True: 16, False: 8}
"""Elements per vector step: integers (int16 left, int8 right) or float32."""

AHEAD = 1024
"""Prefetch distance of interleaved rows, in bytes."""


def make_tile(rows: int, whole: bool, woven: bool) -> Any:
    """Return `tile(left, left_row, right, right_row, length, sums)`: addresses and row strides in bytes.

    `length` counts elements: a positive multiple of the vector step. If the right rows are `interleaved`, a step of the
    first row is followed by the same step of the second, and so on, so that they are read in one stream.
    """

    @intrinsic
    def tile(typing, left, left_row, right, right_row, length, sums):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _write_tile(builder, rows, whole, woven, *args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return tile


def make_mix(rows: int, vectors: int) -> Any:
    """Return `mix(weights, weights_row, values, value_row, count, totals, totals_row)`: addresses and row strides.

    Adds `count` weighted rows of values to each row of totals, which has `vectors` times eight elements.
    """

    @intrinsic
    def mix(typing, weights, weights_row, values, value_row, count, totals, totals_row):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _write_mix(builder, rows, vectors, *args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return mix


def _make_take() -> Any:
    """Return an intrinsic that atomically increments the task counter shared by all threads."""

    @intrinsic
    def take(typing, counter):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.atomic_rmw("add", args[0], WORD(1), "monotonic")

        return types.int64(types.CPointer(types.int64)), codegen

    return take


take = _make_take()


def _pointer(kind: Any) -> Any:
    """Return an intrinsic that casts an address to a typed pointer."""

    @intrinsic
    def point(typing, address):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), codegen

    return point


at_words, at_numbers = _pointer(types.int64), _pointer(types.float32)


def _reinterpret(given: Any, found: Any) -> Any:
    """Return an intrinsic that reinterprets 32 bits as another type."""

    @intrinsic
    def reinterpret(typing, bits):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(found))

        return found(given), codegen

    return reinterpret


bits_of, number_of = _reinterpret(types.float32, types.int32), _reinterpret(types.int32, types.float32)


# Code emission.


def _write_tile(
    builder: Any,
    rows: int,
    whole: bool,
    woven: bool,
    left: Any,
    left_row: Any,
    right: Any,
    right_row: Any,
    length: Any,
    sums: Any,
) -> None:
    kind = ir.VectorType(ir.IntType(32) if whole else NUMBER, 8)
    lefts = _rows(builder, left, left_row, rows)
    rights = _rows(builder, right, WORD(16 if whole else 32) if woven else right_row, COLUMNS)
    zeros = [ir.Constant(kind, None)] * (rows * COLUMNS)

    def step(at: Any, totals: list[Any]) -> list[Any]:
        return _step(builder, whole, woven, lefts, rights, at, totals)

    partial_sums = _repeat(builder, length, STEP[whole], zeros, step)
    for row in range(rows):
        row_sums = _fold(builder, whole, partial_sums[row * COLUMNS : (row + 1) * COLUMNS])
        address = builder.add(sums, WORD(row * COLUMNS * 4))
        builder.store(row_sums, builder.inttoptr(address, row_sums.type.as_pointer()), align=4)


def _write_mix(
    builder: Any,
    rows: int,
    vectors: int,
    weights: Any,
    weights_row: Any,
    values: Any,
    value_row: Any,
    count: Any,
    totals: Any,
    totals_row: Any,
) -> None:
    vector_type, weight_rows = ir.VectorType(NUMBER, 8), _rows(builder, weights, weights_row, rows)
    pointers = [
        builder.inttoptr(builder.add(base, WORD(32 * vector)), vector_type.as_pointer())
        for base in _rows(builder, totals, totals_row, rows)
        for vector in range(vectors)
    ]

    def step(at: Any, totals: list[Any]) -> list[Any]:
        row = builder.add(values, builder.mul(at, value_row))
        value_vectors = [_load(builder, row, WORD(8 * vector), 32, whole=False) for vector in range(vectors)]
        broadcast = [_spread(builder, base, at) for base in weight_rows]
        pairs = [(weight, value) for weight in broadcast for value in value_vectors]
        return [_fma(builder, weight, value, total) for (weight, value), total in zip(pairs, totals, strict=True)]

    initial = [builder.load(pointer, align=4) for pointer in pointers]
    for pointer, total in zip(pointers, _repeat(builder, count, 1, initial, step), strict=True):
        builder.store(total, pointer, align=4)


def _rows(builder: Any, base: Any, apart: Any, count: int) -> list[Any]:
    return [builder.add(base, builder.mul(apart, WORD(row))) for row in range(count)]


def _repeat(builder: Any, length: Any, step: int, first: list[Any], body: Any) -> list[Any]:
    """Emit a loop of `body(at, values)` for at = 0, step, 2 step, ... below `length` (at least once)."""
    start, loop, end = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("looped")
    builder.branch(loop)
    builder.position_at_end(loop)
    at, values = builder.phi(WORD), [builder.phi(value.type) for value in first]
    results = body(at, values)
    following = builder.add(at, WORD(step))
    for phi, before, after in zip([at, *values], [WORD(0), *first], [following, *results], strict=True):
        phi.add_incoming(before, start)
        phi.add_incoming(after, loop)
    builder.cbranch(builder.icmp_signed("<", following, length), loop, end)
    builder.position_at_end(end)
    return results


def _spread(builder: Any, base: Any, at: Any) -> Any:
    """Load one float and broadcast it to eight lanes."""
    pointer = builder.inttoptr(builder.add(base, builder.mul(at, WORD(4))), NUMBER.as_pointer())
    undefined = ir.Constant(ir.VectorType(NUMBER, 8), ir.Undefined)
    scalar = builder.insert_element(undefined, builder.load(pointer, align=4), ir.IntType(32)(0))
    return _pick(builder, scalar, scalar, [0] * 8)


def _step(
    builder: Any, whole: bool, woven: bool, lefts: list[Any], rights: list[Any], at: Any, totals: list[Any]
) -> list[Any]:
    """Emit one vector step: load from every row, multiply each pair, add to the totals."""
    right_bits, left_bits = (8, 16) if whole else (32, 32)
    right_at = builder.mul(at, WORD(COLUMNS)) if woven else at
    right_vectors = [_load(builder, base, right_at, right_bits, whole) for base in rights]
    if woven:
        _ask_for(builder, builder.add(rights[0], builder.mul(right_at, WORD(right_bits // 8))), lines=1 if whole else 2)
    if whole:
        right_vectors = [builder.sext(vector, ir.VectorType(ir.IntType(16), 16)) for vector in right_vectors]
    new_totals = []
    for row, base in enumerate(lefts):
        left = _load(builder, base, at, left_bits, whole)
        for column, right in enumerate(right_vectors):
            total = totals[row * COLUMNS + column]
            new_totals.append(_add_pairs(builder, left, right, total) if whole else _fma(builder, left, right, total))
    return new_totals


def _load(builder: Any, base: Any, at: Any, bits: int, whole: bool) -> Any:
    kind = ir.VectorType(ir.IntType(bits) if whole else NUMBER, STEP[whole])
    address = builder.add(base, builder.mul(at, WORD(bits // 8)))
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _ask_for(builder: Any, where: Any, lines: int) -> None:
    """Prefetch cache lines ahead; past the end of an array this has no effect."""
    for line in range(lines):
        pointer = builder.inttoptr(builder.add(where, WORD(AHEAD + 64 * line)), ir.IntType(8).as_pointer())
        int32 = ir.IntType(32)
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, int32(0), int32(3), int32(1))


def _add_pairs(builder: Any, one: Any, other: Any, total: Any) -> Any:
    """Add sixteen int16 products, pairwise summed in int32: one instruction (pmaddwd) with AVX2."""
    wide = ir.VectorType(ir.IntType(32), 16)
    if binding.get_host_cpu_features().get("avx2"):
        return builder.add(total, _call(builder, "llvm.x86.avx2.pmadd.wd", total.type, one, other))
    products = builder.mul(builder.sext(one, wide), builder.sext(other, wide))
    return builder.add(total, _neighbours(builder, products, products, range(0, 16, 2), builder.add))


def _fma(builder: Any, one: Any, other: Any, total: Any) -> Any:
    return _call(builder, "llvm.fma.v8f32", total.type, one, other, total)


def _call(builder: Any, name: str, kind: Any, *given: Any) -> Any:
    known = builder.module.globals.get(name)
    function = known or ir.Function(builder.module, ir.FunctionType(kind, [value.type for value in given]), name)
    return builder.call(function, given)


def _fold(builder: Any, whole: bool, four: list[Any]) -> Any:
    """Horizontal sum of four vectors of eight: neighbours, neighbours again, then the two halves."""
    add = builder.add if whole else builder.fadd
    evens = [0, 2, 8, 10, 4, 6, 12, 14]
    first, second = (_neighbours(builder, four[i], four[i + 1], evens, add) for i in (0, 2))
    both = _neighbours(builder, first, second, evens, add)
    return add(_pick(builder, both, both, range(4)), _pick(builder, both, both, range(4, 8)))


def _neighbours(builder: Any, one: Any, other: Any, evens: Any, add: Any) -> Any:
    odds = [index + 1 for index in evens]
    return add(_pick(builder, one, other, evens), _pick(builder, one, other, odds))


def _pick(builder: Any, one: Any, other: Any, indices: Any) -> Any:
    lanes = list(indices)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(one, other, mask)
