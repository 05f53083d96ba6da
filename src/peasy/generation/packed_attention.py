"""Numba varlen attention kernel: every query is computed row-wise over exactly its visible keys.

One call handles all sequences of a pass; threads take blocks of queries of one head from a shared counter. Scores,
weights and the weighted sum are computed in an order that depends only on the query's own keys: batch-invariant.
"""

from collections.abc import Callable

import numpy as np
from numba import carray, cfunc, njit
from numpy import ndarray

from peasy.generation.packed_kernel import (
    ABS_MASK,
    INFINITY_BITS,
    TASK_SIGNATURE,
    exp_float32,
    tile_1_float32,
    tile_2_float32,
)
from peasy.generation.packed_llvm import (
    TILE_COLUMNS,
    TaskPointer,
    bits_to_float,
    float32_pointer,
    float_to_bits,
    int64_pointer,
    make_accumulate,
    next_ticket,
)

QUERY_BLOCK = 16
"""Queries of one sequence and head per task: their keys and values are loaded into the CPU cache once."""

_WORDS_PER_SEQUENCE = 18
"""64-bit words per sequence: address, token stride and head stride (bytes) of queries, keys and values; number of
queries and keys; output address; address and strides of new keys and values (0 = nothing to append)."""


@njit(error_model="numpy")
def visible_keys(seq: ndarray, row: int, causal: bool, window: int) -> tuple[int, int]:
    """Return the range of keys visible to a query, as (first, end)."""
    end = seq[10] - seq[9] + row + 1 if causal else seq[10]
    return (max(end - window, 0) if window else 0), end


@njit(error_model="numpy")
def _append_kv(new: ndarray, cache: ndarray, start: int, count: int, head: int, width: int) -> None:
    """Append a KV head's new keys or values to its cache; query heads that share it all write the same."""
    for row in range(count):
        vector = carray(float32_pointer(new[0] + row * new[1] + head * new[2]), (width,))
        carray(float32_pointer(cache[0] + (start + row) * cache[1] + head * cache[2]), (width,))[:] = vector


@njit(error_model="numpy")
def _score_block(
    seq: ndarray,
    head: int,
    kv_head: int,
    first: int,
    width: int,
    causal: bool,
    window: int,
    scores: ndarray,
    sums: ndarray,
) -> None:
    """Compute q·k of a block of queries with all keys visible to any of them."""
    last = min(first + QUERY_BLOCK, seq[9])
    begin, _ = visible_keys(seq, first, causal, window)
    _, end = visible_keys(seq, last - 1, causal, window)
    key = begin
    while key < end:
        full_tile = key + TILE_COLUMNS <= end  # the remaining keys are computed one by one
        right, step = seq[3] + key * seq[4] + kv_head * seq[5], seq[4] if full_tile else 0
        for row in range(first, last, 2):
            left = seq[0] + row * seq[1] + head * seq[2]
            if row + 1 < last:
                tile_2_float32(left, seq[1], right, step, width, sums.ctypes.data)
            else:
                tile_1_float32(left, seq[1], right, step, width, sums.ctypes.data)
            for tile_row in range(row, min(row + 2, last)):
                for column in range(TILE_COLUMNS if full_tile else 1):
                    scores[tile_row - first, key + column] = sums[(tile_row - row) * TILE_COLUMNS + column]
        key += TILE_COLUMNS if full_tile else 1


@njit(error_model="numpy", fastmath={"nnan", "nsz"})
def _row_max(row: ndarray) -> np.float32:
    top = row[0]
    for index in range(row.size):
        top = max(top, row[index])
    return top


@njit(error_model="numpy", fastmath={"reassoc"})
def _row_sum(row: ndarray) -> np.float32:
    """Return the sum, vectorised; its order depends only on the row's length."""
    total = np.float32(0)
    for index in range(row.size):
        total += row[index]
    return total


@njit(error_model="numpy")
def _softmax_row(row: ndarray, scale: np.float32) -> None:
    """Softmax in place, after scaling; a non-finite score makes the whole row NaN."""
    largest_bits = np.int32(0)
    for index in range(row.size):
        row[index] = np.float32(row[index] * scale)
        largest_bits = max(largest_bits, np.int32(float_to_bits(row[index]) & ABS_MASK))
    if largest_bits >= INFINITY_BITS:
        row[:] = np.float32(np.nan)
        return
    top = _row_max(row)
    for index in range(row.size):
        row[index] = exp_float32(np.float32(row[index] - top))
    inverse = np.float32(1) / _row_sum(row)
    for index in range(row.size):
        row[index] = np.float32(row[index] * inverse)


def _make_weighted_sum(rows: int) -> Callable[..., None]:
    """Return the weighted sum of the values from `begin` to `end`, for one or two queries."""
    accumulate_4, accumulate_1 = make_accumulate(rows, 4), make_accumulate(rows, 1)

    @njit(error_model="numpy")
    def weighted_sum(
        weights: int, weights_stride: int, begin: int, end: int, values: int, step: int,
        output: int, output_stride: int, width: int,
    ) -> None:  # fmt: skip
        if begin >= end:
            return
        weights, values, count, offset = weights + 4 * begin, values + step * begin, end - begin, 0
        while offset + 32 <= width:
            accumulate_4(weights, weights_stride, values + 4 * offset, step, count, output + 4 * offset, output_stride)
            offset += 32
        while offset < width:
            accumulate_1(weights, weights_stride, values + 4 * offset, step, count, output + 4 * offset, output_stride)
            offset += 8

    return weighted_sum


_weighted_sum_one, _weighted_sum_two = _make_weighted_sum(1), _make_weighted_sum(2)


@njit(error_model="numpy")
def _weighted_sum_block(
    seq: ndarray,
    head: int,
    kv_head: int,
    first: int,
    width: int,
    heads: int,
    causal: bool,
    window: int,
    scores: ndarray,
) -> None:
    """Weighted sums of a block of queries: pairs of queries share the keys visible to both."""
    last, output_stride = min(first + QUERY_BLOCK, seq[9]), heads * width * 4
    values, step = seq[6] + kv_head * seq[8], seq[7]
    for row in range(first, last, 2):
        weights, weights_stride = scores.ctypes.data + (row - first) * scores.shape[1] * 4, scores.shape[1] * 4
        output = seq[11] + row * output_stride + head * width * 4
        carray(float32_pointer(output), (width,))[:] = 0
        begin, end = visible_keys(seq, row, causal, window)
        if row + 1 == last:
            _weighted_sum_one(weights, 0, begin, end, values, step, output, 0, width)
            continue
        carray(float32_pointer(output + output_stride), (width,))[:] = 0
        next_begin, next_end = visible_keys(seq, row + 1, causal, window)
        shared_begin = min(next_begin, end)
        _weighted_sum_one(weights, 0, begin, shared_begin, values, step, output, 0, width)
        _weighted_sum_two(weights, weights_stride, shared_begin, end, values, step, output, output_stride, width)
        weights, output = weights + weights_stride, output + output_stride
        _weighted_sum_one(weights, 0, max(end, next_begin), next_end, values, step, output, 0, width)


@cfunc(TASK_SIGNATURE, cache=True)
def attend_varlen(task: TaskPointer) -> None:
    """softmax(q Kᵀ · scale) V of each query: causal, causal with a sliding window, or over all keys."""
    words = carray(task, (9,))
    num_seqs, heads, kv_heads, width, causal, window = words[1], words[2], words[3], words[4], words[5], words[6]
    table, scale = carray(int64_pointer(words[7]), (num_seqs, _WORDS_PER_SEQUENCE)), bits_to_float(np.int32(words[8]))
    max_keys, tickets = np.int64(0), np.int64(0)
    for index in range(num_seqs):
        max_keys = max(max_keys, table[index, 10])
        tickets += heads * ((table[index, 9] + QUERY_BLOCK - 1) // QUERY_BLOCK)
    scores, sums = np.empty((QUERY_BLOCK, max_keys), np.float32), np.empty(8, np.float32)
    while True:
        ticket = next_ticket(task)
        if ticket >= tickets:
            return
        index = 0
        while ticket >= heads * ((table[index, 9] + QUERY_BLOCK - 1) // QUERY_BLOCK):
            ticket -= heads * ((table[index, 9] + QUERY_BLOCK - 1) // QUERY_BLOCK)
            index += 1
        seq, head, first = table[index], ticket % heads, ticket // heads * QUERY_BLOCK
        kv_head = head // (heads // kv_heads)
        if seq[12]:
            _append_kv(seq[12:15], seq[3:6], seq[10] - seq[9], seq[9], kv_head, width)
            _append_kv(seq[15:18], seq[6:9], seq[10] - seq[9], seq[9], kv_head, width)
        _score_block(seq, head, kv_head, first, width, causal, window, scores, sums)
        for row in range(first, min(first + QUERY_BLOCK, seq[9])):
            begin, end = visible_keys(seq, row, causal, window)
            _softmax_row(scores[row - first, begin:end], scale)
        _weighted_sum_block(seq, head, kv_head, first, width, heads, causal, window, scores)
