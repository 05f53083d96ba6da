"""Numba varlen attention kernel: every query is computed row-wise over exactly its visible keys.

One call handles all sequences of a pass; threads take blocks of queries of one head from a shared counter. Scores,
weights and the weighted sum are computed in an order that depends only on the query's own keys: batch-invariant.
"""

from typing import Any

import numpy as np
from numba import carray, cfunc, njit

from peasy.generation.packed_kernel import FINITE, MAGNITUDE, TASK, exponential, one_floating, two_floating
from peasy.generation.packed_machine import COLUMNS, at_numbers, at_words, bits_of, make_mix, number_of, take

HIGH = 16
"""Queries of one sequence and head per task: their keys and values are loaded into the CPU cache once."""

mix_one_four, mix_two_four = make_mix(1, 4), make_mix(2, 4)
mix_one_one, mix_two_one = make_mix(1, 1), make_mix(2, 1)

WORDS = 18
"""64-bit words per sequence: address, token stride and head stride (bytes) of queries, keys and values; number of
queries and keys; output address; address and strides of new keys and values (0 = nothing to append)."""


@njit(error_model="numpy")
def sight(own: Any, row: Any, causal: Any, window: Any) -> Any:
    """Return the range of keys visible to a query, as (first, end)."""
    end = own[10] - own[9] + row + 1 if causal else own[10]
    return (max(end - window, 0) if window else 0), end


@njit(error_model="numpy")
def remember(new: Any, held: Any, start: Any, count: Any, head: Any, width: Any) -> None:
    """Append a KV head's new keys or values to its cache; query heads that share it all write the same."""
    for row in range(count):
        vector = carray(at_numbers(new[0] + row * new[1] + head * new[2]), (width,))
        carray(at_numbers(held[0] + (start + row) * held[1] + head * held[2]), (width,))[:] = vector


@njit(error_model="numpy")
def score(
    own: Any, head: Any, key_head: Any, first: Any, width: Any, causal: Any, window: Any, scores: Any, sums: Any
) -> None:
    """Compute q·k of a block of queries with all keys visible to any of them."""
    last = min(first + HIGH, own[9])
    begin, _ = sight(own, first, causal, window)
    _, end = sight(own, last - 1, causal, window)
    key = begin
    while key < end:
        full_tile = key + COLUMNS <= end  # the remaining keys are computed one by one
        right, step = own[3] + key * own[4] + key_head * own[5], own[4] if full_tile else 0
        for row in range(first, last, 2):
            left = own[0] + row * own[1] + head * own[2]
            if row + 1 < last:
                two_floating(left, own[1], right, step, width, sums.ctypes.data)
            else:
                one_floating(left, own[1], right, step, width, sums.ctypes.data)
            for tile_row in range(row, min(row + 2, last)):
                for column in range(COLUMNS if full_tile else 1):
                    scores[tile_row - first, key + column] = sums[(tile_row - row) * COLUMNS + column]
        key += COLUMNS if full_tile else 1


@njit(error_model="numpy", fastmath={"nnan", "nsz"})
def find_most(row: Any) -> Any:
    """Return the maximum."""
    top = row[0]
    for index in range(row.size):
        top = max(top, row[index])
    return top


@njit(error_model="numpy", fastmath={"reassoc"})
def add_up(row: Any) -> Any:
    """Return the sum, vectorised; its order depends only on the row's length."""
    total = np.float32(0)
    for index in range(row.size):
        total += row[index]
    return total


@njit(error_model="numpy")
def soften(row: Any, scale: Any) -> None:
    """Softmax in place, after scaling; a non-finite score makes the whole row NaN."""
    largest_bits = np.int32(0)
    for index in range(row.size):
        row[index] = np.float32(row[index] * scale)
        largest_bits = max(largest_bits, np.int32(bits_of(row[index]) & MAGNITUDE))
    if largest_bits >= FINITE:
        row[:] = np.float32(np.nan)
        return
    top = find_most(row)
    for index in range(row.size):
        row[index] = exponential(np.float32(row[index] - top))
    inverse = np.float32(1) / add_up(row)
    for index in range(row.size):
        row[index] = np.float32(row[index] * inverse)


@njit(error_model="numpy")
def mix_one(weights: Any, begin: Any, end: Any, values: Any, step: Any, found: Any, width: Any) -> None:
    """Weighted sum of the values from `begin` to `end`, for one query."""
    if begin >= end:
        return
    weights, values, count, offset = weights + 4 * begin, values + step * begin, end - begin, 0
    while offset + 32 <= width:
        mix_one_four(weights, 0, values + 4 * offset, step, count, found + 4 * offset, 0)
        offset += 32
    while offset < width:
        mix_one_one(weights, 0, values + 4 * offset, step, count, found + 4 * offset, 0)
        offset += 8


@njit(error_model="numpy")
def mix_two(
    weights: Any, apart: Any, begin: Any, end: Any, values: Any, step: Any, found: Any, line: Any, width: Any
) -> None:
    """Weighted sum of the values from `begin` to `end`, for two queries."""
    if begin >= end:
        return
    weights, values, count, offset = weights + 4 * begin, values + step * begin, end - begin, 0
    while offset + 32 <= width:
        mix_two_four(weights, apart, values + 4 * offset, step, count, found + 4 * offset, line)
        offset += 32
    while offset < width:
        mix_two_one(weights, apart, values + 4 * offset, step, count, found + 4 * offset, line)
        offset += 8


@njit(error_model="numpy")
def blend(
    own: Any, head: Any, key_head: Any, first: Any, width: Any, heads: Any, causal: Any, window: Any, scores: Any
) -> None:
    """Weighted sums of a block of queries: pairs of queries share the keys visible to both."""
    last, output_stride = min(first + HIGH, own[9]), heads * width * 4
    values, step = own[6] + key_head * own[8], own[7]
    for row in range(first, last, 2):
        weights, weights_stride = scores.ctypes.data + (row - first) * scores.shape[1] * 4, scores.shape[1] * 4
        output = own[11] + row * output_stride + head * width * 4
        carray(at_numbers(output), (width,))[:] = 0
        begin, end = sight(own, row, causal, window)
        if row + 1 == last:
            mix_one(weights, begin, end, values, step, output, width)
            continue
        carray(at_numbers(output + output_stride), (width,))[:] = 0
        next_begin, next_end = sight(own, row + 1, causal, window)
        shared_begin = min(next_begin, end)
        mix_one(weights, begin, shared_begin, values, step, output, width)
        mix_two(weights, weights_stride, shared_begin, end, values, step, output, output_stride, width)
        mix_one(weights + weights_stride, max(end, next_begin), next_end, values, step, output + output_stride, width)


@cfunc(TASK, cache=True)
def look(task: Any) -> None:
    """softmax(q Kᵀ · scale) V of each query: causal, causal with a sliding window, or over all keys."""
    words = carray(task, (9,))
    num_seqs, heads, kv_heads, width, causal, window = words[1], words[2], words[3], words[4], words[5], words[6]
    table, scale = carray(at_words(words[7]), (num_seqs, WORDS)), number_of(np.int32(words[8]))
    max_keys, tickets = np.int64(0), np.int64(0)
    for index in range(num_seqs):
        max_keys = max(max_keys, table[index, 10])
        tickets += heads * ((table[index, 9] + HIGH - 1) // HIGH)
    scores, sums = np.empty((HIGH, max_keys), np.float32), np.empty(8, np.float32)
    while True:
        ticket = take(task)
        if ticket >= tickets:
            return
        index = 0
        while ticket >= heads * ((table[index, 9] + HIGH - 1) // HIGH):
            ticket -= heads * ((table[index, 9] + HIGH - 1) // HIGH)
            index += 1
        seq, head, first = table[index], ticket % heads, ticket // heads * HIGH
        kv_head = head // (heads // kv_heads)
        if seq[12]:
            remember(seq[12:15], seq[3:6], seq[10] - seq[9], seq[9], kv_head, width)
            remember(seq[15:18], seq[6:9], seq[10] - seq[9], seq[9], kv_head, width)
        score(seq, head, kv_head, first, width, causal, window, scores, sums)
        for row in range(first, min(first + HIGH, seq[9])):
            begin, end = sight(seq, row, causal, window)
            soften(scores[row - first, begin:end], scale)
        blend(seq, head, kv_head, first, width, heads, causal, window, scores)
