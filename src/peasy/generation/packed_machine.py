"""The innermost loops of the kernel, written for the machine so that all sums stay in its registers.

A tile multiplies one or two rows of the left with four rows of the right, all of them read from start to end, and
leaves one sum for each pair. Every pair is summed in the same order in every tile: eight sums side by side, added up
at the end as ((0+1)+(2+3))+((4+5)+(6+7)). So the bits of a pair do not depend on who else is in the tile.
A mix adds up vectors by weights, one after the other, for one or two rows of weights.
"""

from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped,unused-ignore]
from numba import types
from numba.extending import intrinsic

WORD, NUMBER = ir.IntType(64), ir.FloatType()
COLUMNS = 4
"""So many rows of the right are multiplied at a time."""

STEP = {True: 16, False: 8}
"""So many numbers are read at a time: whole ones (16 bits on the left, 8 on the right) or floating ones."""

AHEAD = 1024
"""So many bytes before they are needed, woven rows are asked for."""


def make_tile(rows: int, whole: bool, woven: bool) -> Any:
    """`tile(left, left_row, right, right_row, length, sums)`: addresses, and how many bytes lie between two rows.

    `length` counts numbers; it must be a multiple of STEP and at least one of them. Where the rows of the right are
    `woven`, a step of the first is followed by the same step of the second, and so on: all is read in one stream.
    """

    @intrinsic
    def tile(typing, left, left_row, right, right_row, length, sums):  # type: ignore[no-untyped-def]
        def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            _write_tile(builder, rows, whole, woven, *given)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), write

    return tile


def make_mix(rows: int, vectors: int) -> Any:
    """`mix(weights, weights_row, values, value_row, count, totals, totals_row)`: addresses, and bytes between rows.

    To each row of totals, `vectors` times eight numbers, `count` rows of values are added by that row's weights.
    """

    @intrinsic
    def mix(typing, weights, weights_row, values, value_row, count, totals, totals_row):  # type: ignore[no-untyped-def]
        def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            _write_mix(builder, rows, vectors, *given)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), write

    return mix


def _make_take() -> Any:
    """The next number of a counter that all threads share, at the address of a task."""

    @intrinsic
    def take(typing, counter):  # type: ignore[no-untyped-def]
        def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.atomic_rmw("add", given[0], WORD(1), "monotonic")

        return types.int64(types.CPointer(types.int64)), write

    return take


take = _make_take()


def _pointer(kind: Any) -> Any:
    """From an address to a pointer."""

    @intrinsic
    def point(typing, address):  # type: ignore[no-untyped-def]
        def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.inttoptr(given[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), write

    return point


at_words, at_numbers = _pointer(types.int64), _pointer(types.float32)


def _reinterpret(given: Any, found: Any) -> Any:
    """The same 32 bits, taken for something else."""

    @intrinsic
    def reinterpret(typing, bits):  # type: ignore[no-untyped-def]
        def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(found))

        return found(given), write

    return reinterpret


bits_of, number_of = _reinterpret(types.float32, types.int32), _reinterpret(types.int32, types.float32)


# Writing them.


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
    nothing = [ir.Constant(kind, None)] * (rows * COLUMNS)

    def step(at: Any, totals: list[Any]) -> list[Any]:
        return _step(builder, whole, woven, lefts, rights, at, totals)

    added = _repeat(builder, length, STEP[whole], nothing, step)
    for row in range(rows):
        four = _fold(builder, whole, added[row * COLUMNS : (row + 1) * COLUMNS])
        where = builder.add(sums, WORD(row * COLUMNS * 4))
        builder.store(four, builder.inttoptr(where, four.type.as_pointer()), align=4)


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
    eight, weight_of = ir.VectorType(NUMBER, 8), _rows(builder, weights, weights_row, rows)
    places = [
        builder.inttoptr(builder.add(base, WORD(32 * vector)), eight.as_pointer())
        for base in _rows(builder, totals, totals_row, rows)
        for vector in range(vectors)
    ]

    def step(at: Any, totals: list[Any]) -> list[Any]:
        row = builder.add(values, builder.mul(at, value_row))
        several = [_load(builder, row, WORD(8 * vector), 32, whole=False) for vector in range(vectors)]
        shares = [_spread(builder, base, at) for base in weight_of]
        pairs = [(share, value) for share in shares for value in several]
        return [_fma(builder, share, value, total) for (share, value), total in zip(pairs, totals, strict=True)]

    before = [builder.load(place, align=4) for place in places]
    for place, total in zip(places, _repeat(builder, count, 1, before, step), strict=True):
        builder.store(total, place, align=4)


def _rows(builder: Any, base: Any, apart: Any, count: int) -> list[Any]:
    return [builder.add(base, builder.mul(apart, WORD(row))) for row in range(count)]


def _repeat(builder: Any, length: Any, step: int, first: list[Any], body: Any) -> list[Any]:
    """The values that `body(at, values)` leaves after at = 0, step, 2 step, ... below `length`: at least once."""
    start, loop, end = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("looped")
    builder.branch(loop)
    builder.position_at_end(loop)
    at, values = builder.phi(WORD), [builder.phi(value.type) for value in first]
    found = body(at, values)
    following = builder.add(at, WORD(step))
    for phi, before, after in zip([at, *values], [WORD(0), *first], [following, *found], strict=True):
        phi.add_incoming(before, start)
        phi.add_incoming(after, loop)
    builder.cbranch(builder.icmp_signed("<", following, length), loop, end)
    builder.position_at_end(end)
    return found


def _spread(builder: Any, base: Any, at: Any) -> Any:
    """One number, eight times."""
    where = builder.inttoptr(builder.add(base, builder.mul(at, WORD(4))), NUMBER.as_pointer())
    eight = ir.VectorType(NUMBER, 8)
    one = builder.insert_element(ir.Constant(eight, ir.Undefined), builder.load(where, align=4), ir.IntType(32)(0))
    return _pick(builder, one, one, [0] * 8)


def _step(
    builder: Any, whole: bool, woven: bool, lefts: list[Any], rights: list[Any], at: Any, totals: list[Any]
) -> list[Any]:
    """The next few numbers of every row, multiplied with each other and added to the totals."""
    narrow, wide = (8, 16) if whole else (32, 32)
    there = builder.mul(at, WORD(COLUMNS)) if woven else at
    of_right = [_load(builder, base, there, narrow, whole) for base in rights]
    if woven:
        _ask_for(builder, builder.add(rights[0], builder.mul(there, WORD(narrow // 8))), lines=1 if whole else 2)
    if whole:
        of_right = [builder.sext(each, ir.VectorType(ir.IntType(16), 16)) for each in of_right]
    found = []
    for row, base in enumerate(lefts):
        own = _load(builder, base, at, wide, whole)
        for column, other in enumerate(of_right):
            total = totals[row * COLUMNS + column]
            found.append(_add_pairs(builder, own, other, total) if whole else _fma(builder, own, other, total))
    return found


def _load(builder: Any, base: Any, at: Any, bits: int, whole: bool) -> Any:
    kind = ir.VectorType(ir.IntType(bits) if whole else NUMBER, STEP[whole])
    where = builder.add(base, builder.mul(at, WORD(bits // 8)))
    return builder.load(builder.inttoptr(where, kind.as_pointer()), align=1)


def _ask_for(builder: Any, where: Any, lines: int) -> None:
    """Let memory bring what comes later; beyond the end of an array nothing happens."""
    for line in range(lines):
        byte = builder.inttoptr(builder.add(where, WORD(AHEAD + 64 * line)), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), byte, number(0), number(3), number(1))


def _add_pairs(builder: Any, one: Any, other: Any, total: Any) -> Any:
    """Sixteen products in 32 bits, neighbours added: one instruction on the processors that have it."""
    wide = ir.VectorType(ir.IntType(32), 16)
    if binding.get_host_cpu_features().get("avx2"):
        return builder.add(total, _call(builder, "llvm.x86.avx2.pmadd.wd", total.type, one, other))
    products = builder.mul(builder.sext(one, wide), builder.sext(other, wide))
    return builder.add(total, _neighbours(builder, products, products, range(0, 16, 2), builder.add))


def _fma(builder: Any, one: Any, other: Any, total: Any) -> Any:
    return _call(builder, "llvm.fma.v8f32", total.type, one, other, total)


def _call(builder: Any, name: str, kind: Any, *given: Any) -> Any:
    known = builder.module.globals.get(name)
    function = known or ir.Function(builder.module, ir.FunctionType(kind, [each.type for each in given]), name)
    return builder.call(function, given)


def _fold(builder: Any, whole: bool, four: list[Any]) -> Any:
    """Four times eight sums to four: neighbours, neighbours again, then the two halves."""
    add = builder.add if whole else builder.fadd
    evens = [0, 2, 8, 10, 4, 6, 12, 14]
    first, second = (_neighbours(builder, four[i], four[i + 1], evens, add) for i in (0, 2))
    both = _neighbours(builder, first, second, evens, add)
    return add(_pick(builder, both, both, range(4)), _pick(builder, both, both, range(4, 8)))


def _neighbours(builder: Any, one: Any, other: Any, evens: Any, add: Any) -> Any:
    odds = [index + 1 for index in evens]
    return add(_pick(builder, one, other, evens), _pick(builder, one, other, odds))


def _pick(builder: Any, one: Any, other: Any, indices: Any) -> Any:
    chosen = list(indices)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)
    return builder.shuffle_vector(one, other, mask)
