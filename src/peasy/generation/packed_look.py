"""The kernel of attention: every query looks alone at exactly the keys it sees, however many are read in one pass.

All texts of a pass are looked up in one go; the threads take turns at a few queries of one head. A query's scores, its
weights and their mix are computed in an order that depends on nothing but its own keys.
"""

from typing import Any

import numpy as np
from numba import carray, cfunc, njit

from peasy.generation.packed_kernel import FINITE, MAGNITUDE, TASK, exponential, one_floating, two_floating
from peasy.generation.packed_machine import COLUMNS, at_numbers, at_words, bits_of, make_mix, number_of, take

HIGH = 16
"""So many queries of a text and a head are looked up together: keys and values come near once for all of them."""

mix_one_four, mix_two_four = make_mix(1, 4), make_mix(2, 4)
mix_one_one, mix_two_one = make_mix(1, 1), make_mix(2, 1)

WORDS = 18
"""A text's words: address and steps (to the next token, to the next head, in bytes) of queries, keys and values; how
many queries and keys; where the first context goes; and address and steps of new keys and values, 0 = none is new."""


@njit(error_model="numpy")
def sight(own: Any, row: Any, causal: Any, window: Any) -> Any:
    """The first key that a query sees, and the one after the last."""
    end = own[10] - own[9] + row + 1 if causal else own[10]
    return (max(end - window, 0) if window else 0), end


@njit(error_model="numpy")
def remember(new: Any, held: Any, start: Any, count: Any, head: Any, width: Any) -> None:
    """Write a head's new keys or values behind those that are held. Who looks by this head writes the same."""
    for row in range(count):
        one = carray(at_numbers(new[0] + row * new[1] + head * new[2]), (width,))
        carray(at_numbers(held[0] + (start + row) * held[1] + head * held[2]), (width,))[:] = one


@njit(error_model="numpy")
def score(
    own: Any, head: Any, key_head: Any, first: Any, width: Any, causal: Any, window: Any, scores: Any, sums: Any
) -> None:
    """The products of a few queries with all keys that any of them sees."""
    last = min(first + HIGH, own[9])
    begin, _ = sight(own, first, causal, window)
    _, end = sight(own, last - 1, causal, window)
    key = begin
    while key < end:
        four = key + COLUMNS <= end  # what is left at the end goes one by one
        right, step = own[3] + key * own[4] + key_head * own[5], own[4] if four else 0
        for row in range(first, last, 2):
            left = own[0] + row * own[1] + head * own[2]
            if row + 1 < last:
                two_floating(left, own[1], right, step, width, sums.ctypes.data)
            else:
                one_floating(left, own[1], right, step, width, sums.ctypes.data)
            for other in range(row, min(row + 2, last)):
                for column in range(COLUMNS if four else 1):
                    scores[other - first, key + column] = sums[(other - row) * COLUMNS + column]
        key += COLUMNS if four else 1


@njit(error_model="numpy", fastmath={"nnan", "nsz"})
def find_most(row: Any) -> Any:
    """The largest number."""
    top = row[0]
    for index in range(row.size):
        top = max(top, row[index])
    return top


@njit(error_model="numpy", fastmath={"reassoc"})
def add_up(row: Any) -> Any:
    """The sum, several numbers side by side: in an order that depends on the row's length alone."""
    total = np.float32(0)
    for index in range(row.size):
        total += row[index]
    return total


@njit(error_model="numpy")
def soften(row: Any, scale: Any) -> None:
    """Scores become weights that sum to one; what is not finite makes the whole row NaN."""
    largest = np.int32(0)
    for index in range(row.size):
        row[index] = np.float32(row[index] * scale)
        largest = max(largest, np.int32(bits_of(row[index]) & MAGNITUDE))
    if largest >= FINITE:
        row[:] = np.float32(np.nan)
        return
    top = find_most(row)
    for index in range(row.size):
        row[index] = exponential(np.float32(row[index] - top))
    share = np.float32(1) / add_up(row)
    for index in range(row.size):
        row[index] = np.float32(row[index] * share)


@njit(error_model="numpy")
def mix_one(weights: Any, begin: Any, end: Any, values: Any, step: Any, found: Any, width: Any) -> None:
    """The values from `begin` to `end`, for one query."""
    if begin >= end:
        return
    weights, values, count, at = weights + 4 * begin, values + step * begin, end - begin, 0
    while at + 32 <= width:
        mix_one_four(weights, 0, values + 4 * at, step, count, found + 4 * at, 0)
        at += 32
    while at < width:
        mix_one_one(weights, 0, values + 4 * at, step, count, found + 4 * at, 0)
        at += 8


@njit(error_model="numpy")
def mix_two(
    weights: Any, apart: Any, begin: Any, end: Any, values: Any, step: Any, found: Any, line: Any, width: Any
) -> None:
    """The same for two."""
    if begin >= end:
        return
    weights, values, count, at = weights + 4 * begin, values + step * begin, end - begin, 0
    while at + 32 <= width:
        mix_two_four(weights, apart, values + 4 * at, step, count, found + 4 * at, line)
        at += 32
    while at < width:
        mix_two_one(weights, apart, values + 4 * at, step, count, found + 4 * at, line)
        at += 8


@njit(error_model="numpy")
def blend(
    own: Any, head: Any, key_head: Any, first: Any, width: Any, heads: Any, causal: Any, window: Any, scores: Any
) -> None:
    """Values by weights: two queries at a time over the keys that both see, each alone over the others."""
    last, line = min(first + HIGH, own[9]), heads * width * 4
    values, step = own[6] + key_head * own[8], own[7]
    for row in range(first, last, 2):
        weights, apart = scores.ctypes.data + (row - first) * scores.shape[1] * 4, scores.shape[1] * 4
        found = own[11] + row * line + head * width * 4
        carray(at_numbers(found), (width,))[:] = 0
        begin, end = sight(own, row, causal, window)
        if row + 1 == last:
            mix_one(weights, begin, end, values, step, found, width)
            continue
        carray(at_numbers(found + line), (width,))[:] = 0
        later, after = sight(own, row + 1, causal, window)
        middle = min(later, end)
        mix_one(weights, begin, middle, values, step, found, width)
        mix_two(weights, apart, middle, end, values, step, found, line, width)
        mix_one(weights + apart, max(end, later), after, values, step, found + line, width)


@cfunc(TASK, cache=True)
def look(task: Any) -> None:
    """softmax(q Kᵀ · scale) V of each query over the keys up to its own, the last `window` of them, or over all."""
    words = carray(task, (9,))
    texts, heads, shared, width, causal, window = words[1], words[2], words[3], words[4], words[5], words[6]
    table, scale = carray(at_words(words[7]), (texts, WORDS)), number_of(np.int32(words[8]))
    most, tickets = np.int64(0), np.int64(0)
    for text in range(texts):
        most = max(most, table[text, 10])
        tickets += heads * ((table[text, 9] + HIGH - 1) // HIGH)
    scores, sums = np.empty((HIGH, most), np.float32), np.empty(8, np.float32)
    while True:
        ticket = take(task)
        if ticket >= tickets:
            return
        text = 0
        while ticket >= heads * ((table[text, 9] + HIGH - 1) // HIGH):
            ticket -= heads * ((table[text, 9] + HIGH - 1) // HIGH)
            text += 1
        own, head, first = table[text], ticket % heads, ticket // heads * HIGH
        key_head = head // (heads // shared)
        if own[12]:
            remember(own[12:15], own[3:6], own[10] - own[9], own[9], key_head, width)
            remember(own[15:18], own[6:9], own[10] - own[9], own[9], key_head, width)
        score(own, head, key_head, first, width, causal, window, scores, sums)
        for row in range(first, min(first + HIGH, own[9])):
            begin, end = sight(own, row, causal, window)
            soften(scores[row - first, begin:end], scale)
        blend(own, head, key_head, first, width, heads, causal, window, scores)
