"""LLVM IR of the innermost kernel loops, emitted so that all accumulators stay in registers.

A tile computes the dot products of one or two left rows with four right rows. Every pair is summed in the same order
in every tile: eight partial sums, added at the end as ((0+1)+(2+3))+((4+5)+(6+7)), so the bits of a pair do not depend
on the rest of the tile. An accumulate adds weighted vectors one after the other, for one or two rows of weights.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped,unused-ignore]
from llvmlite.ir import IRBuilder as Builder  # type: ignore[import-untyped,unused-ignore]
from llvmlite.ir import Value
from numba import types
from numba.extending import intrinsic

TaskPointer = Any
"""Pointer to the 64-bit words of a task; only numba has a type for it."""

INT64, INT32, FLOAT32 = ir.IntType(64), ir.IntType(32), ir.FloatType()
TILE_COLUMNS = 4
"""Right rows per tile."""

_PREFETCH_BYTES = 1024
"""Prefetch distance of interleaved rows, in bytes."""


def make_tile(rows: int, integer: bool, interleaved: bool) -> Any:
    """Return `tile(left, left_row, right, right_row, length, sums)`: addresses and row strides in bytes.

    `length` counts elements: a positive multiple of the vector step. If the right rows are `interleaved`, a step of the
    first row is followed by the same step of the second, and so on, so that they are read in one stream.
    """

    @intrinsic
    def tile(typing, left, left_row, right, right_row, length, sums):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Builder, signature: object, args: Any) -> Any:
            _Emitter(builder, integer).tile(rows, interleaved, *args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return tile


def make_accumulate(rows: int, vectors: int) -> Any:
    """Return `mix(weights, weights_row, values, value_row, count, totals, totals_row)`: addresses and row strides.

    Adds `count` weighted rows of values to each row of totals, which has `vectors` times eight elements.
    """

    @intrinsic
    def mix(typing, weights, weights_row, values, value_row, count, totals, totals_row):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Builder, signature: object, args: Any) -> Any:
            _Emitter(builder, integer=False).accumulate(rows, vectors, *args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return mix


def _make_unary(argument: types.Type, result: types.Type, emit: Callable[[Builder, Value, ir.Type], Value]) -> Any:
    """Return an intrinsic of one argument; `emit` gets the builder, the value and the LLVM type of the result."""

    @intrinsic
    def unary(typing, value):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Builder, signature: object, args: Any) -> Any:
            return emit(builder, args[0], context.get_value_type(result))

        return result(argument), codegen

    return unary


next_ticket = _make_unary(
    types.CPointer(types.int64), types.int64, lambda build, it, _: build.atomic_rmw("add", it, INT64(1), "monotonic")
)
"""Atomically increments the task counter shared by all threads; returns its old value."""

int64_pointer, float32_pointer = (
    _make_unary(types.int64, types.CPointer(kind), Builder.inttoptr) for kind in (types.int64, types.float32)
)
float_to_bits = _make_unary(types.float32, types.int32, Builder.bitcast)
bits_to_float = _make_unary(types.int32, types.float32, Builder.bitcast)


class _Emitter:
    """Emitter of the loops, on integers (int16 left, int8 right: 16 elements per vector step) or float32 (8)."""

    def __init__(self, builder: Builder, integer: bool) -> None:
        self.builder, self.integer, self.step_size = builder, integer, 16 if integer else 8
        self.add = builder.add if integer else builder.fadd

    def tile(
        self, rows: int, interleaved: bool,
        left: Value, left_row: Value, right: Value, right_row: Value, length: Value, sums: Value,
    ) -> None:  # fmt: skip
        """Emit the dot products of the left rows with four right rows."""
        zero = ir.Constant(ir.VectorType(INT32 if self.integer else FLOAT32, 8), None)
        lefts = self._row_addresses(left, left_row, rows)
        stride = INT64(16 if self.integer else 32) if interleaved else right_row
        rights = self._row_addresses(right, stride, TILE_COLUMNS)
        step = partial(self._multiply_step, interleaved, lefts, rights)
        partial_sums = self._loop(length, self.step_size, [zero] * (rows * TILE_COLUMNS), step)
        for row in range(rows):
            # Horizontal sum of four vectors of eight: neighbours, neighbours again, then the two halves.
            vectors = partial_sums[row * TILE_COLUMNS : (row + 1) * TILE_COLUMNS]
            evens = [0, 2, 8, 10, 4, 6, 12, 14]
            first, second = (self._add_neighbours(vectors[i], vectors[i + 1], evens) for i in (0, 2))
            both = self._add_neighbours(first, second, evens)
            row_sums = self.add(self._shuffle(both, both, range(4)), self._shuffle(both, both, range(4, 8)))
            pointer = self._pointer(sums, INT64(row * TILE_COLUMNS), 4, row_sums.type)
            self.builder.store(row_sums, pointer, align=4)

    def accumulate(
        self, rows: int, vectors: int,
        weights: Value, weights_row: Value, values: Value, value_row: Value, count: Value, totals: Value,
        totals_row: Value,
    ) -> None:  # fmt: skip
        """Emit the addition of weighted vectors to each row of totals."""
        weight_rows = self._row_addresses(weights, weights_row, rows)
        pointers = [
            self._pointer(base, INT64(vector), 32, ir.VectorType(FLOAT32, 8))
            for base in self._row_addresses(totals, totals_row, rows)
            for vector in range(vectors)
        ]

        def step(at: Value, totals: list[Value]) -> list[Value]:
            row = self.builder.add(values, self.builder.mul(at, value_row))
            value_vectors = [self._load(row, INT64(8 * vector), 32) for vector in range(vectors)]
            broadcast = [self._broadcast_load(base, at) for base in weight_rows]
            pairs = [(weight, value) for weight in broadcast for value in value_vectors]
            return [self._multiply_add(*pair, total) for pair, total in zip(pairs, totals, strict=True)]

        initial = [self.builder.load(pointer, align=4) for pointer in pointers]
        for pointer, total in zip(pointers, self._loop(count, 1, initial, step), strict=True):
            self.builder.store(total, pointer, align=4)

    def _loop(
        self, length: Value, step: int, first: list[Value], body: Callable[[Value, list[Value]], list[Value]]
    ) -> list[Value]:
        """Emit a loop of `body(at, values)` for at = 0, step, 2 step, ... below `length` (at least once)."""
        builder = self.builder
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

    def _multiply_step(
        self, interleaved: bool, lefts: list[Value], rights: list[Value], at: Value, totals: list[Value]
    ) -> list[Value]:
        """Emit one vector step: load from every row, multiply each pair, add to the totals."""
        right_bits, left_bits = (8, 16) if self.integer else (32, 32)
        right_at = self.builder.mul(at, INT64(TILE_COLUMNS)) if interleaved else at
        right_vectors = [self._load(base, right_at, right_bits) for base in rights]
        if interleaved:
            address = self.builder.add(rights[0], self.builder.mul(right_at, INT64(right_bits // 8)))
            for line in range(1 if self.integer else 2):  # past the end of an array, this has no effect
                pointer = self._pointer(address, INT64(_PREFETCH_BYTES + 64 * line), 1, ir.IntType(8))
                self._call("llvm.prefetch.p0", ir.VoidType(), pointer, INT32(0), INT32(3), INT32(1))
        if self.integer:
            right_vectors = [self.builder.sext(vector, ir.VectorType(ir.IntType(16), 16)) for vector in right_vectors]
        left_vectors = [self._load(base, at, left_bits) for base in lefts]
        pairs = [(left, right) for left in left_vectors for right in right_vectors]
        return [self._multiply_add(*pair, total) for pair, total in zip(pairs, totals, strict=True)]

    def _multiply_add(self, one: Value, other: Value, total: Value) -> Value:
        """Add eight products, or sixteen int16 products summed pairwise in int32: one instruction with AVX2."""
        if not self.integer:
            return self._call("llvm.fma.v8f32", total.type, one, other, total)
        if binding.get_host_cpu_features().get("avx2"):
            return self.builder.add(total, self._call("llvm.x86.avx2.pmadd.wd", total.type, one, other))
        wide = ir.VectorType(INT32, 16)
        products = self.builder.mul(self.builder.sext(one, wide), self.builder.sext(other, wide))
        return self.builder.add(total, self._add_neighbours(products, products, range(0, 16, 2)))

    def _add_neighbours(self, one: Value, other: Value, evens: Iterable[int]) -> Value:
        odds = [index + 1 for index in evens]
        return self.add(self._shuffle(one, other, evens), self._shuffle(one, other, odds))

    def _shuffle(self, one: Value, other: Value, indices: Iterable[int]) -> Value:
        lanes = list(indices)
        return self.builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(INT32, len(lanes)), lanes))

    def _row_addresses(self, base: Value, stride: Value, count: int) -> list[Value]:
        return [self.builder.add(base, self.builder.mul(stride, INT64(row))) for row in range(count)]

    def _pointer(self, base: Value, at: Value, size: int, kind: ir.Type) -> Value:
        """Return a pointer to the element `at` of an array whose elements have `size` bytes."""
        address = self.builder.add(base, self.builder.mul(at, INT64(size)))
        return self.builder.inttoptr(address, kind.as_pointer())

    def _load(self, base: Value, at: Value, bits: int) -> Value:
        kind = ir.VectorType(ir.IntType(bits) if self.integer else FLOAT32, self.step_size)
        return self.builder.load(self._pointer(base, at, bits // 8, kind), align=1)

    def _broadcast_load(self, base: Value, at: Value) -> Value:
        """Load one float and broadcast it to eight lanes."""
        scalar = self.builder.load(self._pointer(base, at, 4, FLOAT32), align=4)
        vector = ir.Constant(ir.VectorType(FLOAT32, 8), ir.Undefined)
        vector = self.builder.insert_element(vector, scalar, INT32(0))
        return self._shuffle(vector, vector, [0] * 8)

    def _call(self, name: str, kind: ir.Type, *args: Value) -> Value:
        module = self.builder.module
        known = module.globals.get(name)
        return self.builder.call(
            known or ir.Function(module, ir.FunctionType(kind, [value.type for value in args]), name), args
        )
