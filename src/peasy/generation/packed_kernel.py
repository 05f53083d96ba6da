"""The kernel: products compiled for this very processor, where numba is installed.

The threads take turns at the channels, a piece at a time: with few rows, reading the weights is what takes the time,
and every weight is read once. Whole numbers are summed without any rounding, and floating ones always in the same
order, so that a row has the same bits in any company.
"""

from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types

from peasy.generation.packed_machine import COLUMNS, at_numbers, bits_of, make_mix, make_tile, number_of, take

TASK = types.void(types.CPointer(types.int64))

ROUND = np.float32(12_582_912.0)
"""1.5 · 2²³: a number of fewer than 22 bits plus this, minus this, is the nearest whole number."""

FEW = 16
"""So many rows are normalised at a time."""

NEAR = 98_304
"""So many bytes of rows are kept near while the weights pass by."""

BENDS = {"relu": 1, "relu-squared": 2, "silu": 3, "gelu-tanh": 4}
"""Activations that a product can end with."""

LOG2, LN2_HIGH, LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
TANH = np.float32(-2 * 0.7978845608028654)
"""Minus twice the root of 2/π: (1 + tanh u) / 2 = 1 / (1 + e⁻²ᵘ)."""

LEAST, MOST = np.float32(-87.0), np.float32(88.0)
"""Where exponentials are no more than nothing, and where they are all that 32 bits hold."""

FINITE, MAGNITUDE = np.int32(0x7F800000), np.int32(0x7FFFFFFF)
"""Without their sign the bits of finite numbers lie below the first, and are ordered like the numbers."""

one_whole, two_whole = make_tile(1, whole=True, woven=True), make_tile(2, whole=True, woven=True)
one_woven, two_woven = make_tile(1, whole=False, woven=True), make_tile(2, whole=False, woven=True)
one_floating, two_floating = make_tile(1, whole=False, woven=False), make_tile(2, whole=False, woven=False)
add_eights = make_mix(1, 1)


@njit(error_model="numpy")
def quantise(x: Any, codes: Any, most: Any) -> Any:
    """Write a row as whole numbers up to `most`; what one of them is worth, NaN where the row is not finite."""
    largest = np.int32(0)
    for index in range(x.size):
        largest = max(largest, np.int32(bits_of(x[index]) & MAGNITUDE))
    size = np.float32(np.nan) if largest >= FINITE else number_of(largest)
    factor = np.float32(min(most / size, np.float32(3e38))) if size > 0 else np.float32(0)
    for index in range(x.size):
        codes[index] = np.int16((np.float32(x[index] * factor) + ROUND) - ROUND)
    codes[x.size :] = 0
    return np.float32(size / most)


@njit(error_model="numpy")
def exponential(x: Any) -> Any:
    """eˣ to the last bit but one: 2ⁿ times a polynomial of what is left. Compilers make vectors of it."""
    x = min(max(x, LEAST), MOST)
    whole = np.int32(np.floor(np.float32(x * LOG2) + np.float32(0.5)))
    times = np.float32(whole)
    rest = np.float32(np.float32(x - np.float32(times * LN2_HIGH)) - np.float32(times * LN2_LOW))
    power = np.float32(1 / 5040)
    power = np.float32(power * rest) + np.float32(1 / 720)
    power = np.float32(power * rest) + np.float32(1 / 120)
    power = np.float32(power * rest) + np.float32(1 / 24)
    power = np.float32(power * rest) + np.float32(1 / 6)
    power = np.float32(power * rest) + np.float32(0.5)
    power = np.float32(power * rest) + np.float32(1)
    power = np.float32(power * rest) + np.float32(1)
    return np.float32(power * number_of(np.int32((whole + np.int32(127)) << 23)))


@njit(error_model="numpy")
def bend(row: Any, how: Any) -> None:
    """An activation, number by number."""
    if how == 1:
        for index in range(row.size):
            row[index] = np.float32(0) if row[index] < 0 else row[index]
    elif how == 2:
        for index in range(row.size):
            row[index] = np.float32(0) if row[index] < 0 else np.float32(row[index] * row[index])
    elif how == 3:
        for index in range(row.size):
            row[index] = np.float32(row[index] / np.float32(np.float32(1) + exponential(-row[index])))
    elif how == 4:
        for index in range(row.size):
            x = row[index]
            inner = np.float32(x + np.float32(np.float32(0.044715) * np.float32(x * np.float32(x * x))))
            row[index] = np.float32(x / np.float32(np.float32(1) + exponential(np.float32(TANH * inner))))


@njit(error_model="numpy")
def normalise(
    x: Any, weight: Any, bias: Any, epsilon: Any, centred: Any, found: Any, padded: Any, sums: Any, ones: Any
) -> None:
    """A row divided by its spread, from its mean or from zero; `padded` has room for the row and zeros after it."""
    width, at = x.size, padded.ctypes.data
    padded[:width], padded[width:] = x, 0
    mean = np.float32(0)
    if centred:
        sums[:] = 0
        add_eights(ones.ctypes.data, 0, at, 32, padded.size // 8, sums.ctypes.data, 0)
        pairs = np.float32(sums[0] + sums[1]) + np.float32(sums[2] + sums[3])
        mean = (pairs + (np.float32(sums[4] + sums[5]) + np.float32(sums[6] + sums[7]))) / np.float32(width)
    for index in range(width):
        padded[index] = np.float32(x[index] - mean)
    one_floating(at, 0, at, 0, padded.size, sums.ctypes.data)
    share = np.float32(1) / np.float32(np.sqrt(np.float32(sums[0] / np.float32(width)) + epsilon))
    for index in range(width):
        found[index] = np.float32(np.float32(padded[index] * share) * weight[index]) + bias[index]


@cfunc(TASK, cache=True)
def multiply_whole(task: Any) -> None:
    """x Wᵀ + b with weights of 8 bits; each row of x is written in up to 16, by a scale of its own."""
    words = carray(task, (14,))
    rows, width, padded, channels, span, most = words[1], words[2], words[3], words[4], words[5], words[6]
    x, found = carray(at_numbers(words[7]), (rows, width)), carray(at_numbers(words[11]), (rows, channels))
    scale, bias = carray(at_numbers(words[9]), (channels,)), carray(at_numbers(words[10]), (channels,))
    high = min(rows, max(2, NEAR // (2 * padded)))
    codes, worth, sums = np.empty((high, padded), np.int16), np.empty(high, np.float32), np.empty(8, np.int32)
    pieces, block, first, here = (channels + span - 1) // span, -1, 0, 0
    while True:
        ticket = take(task)
        if ticket >= pieces * ((rows + high - 1) // high):
            return
        if ticket // pieces != block:
            block = ticket // pieces
            first, here = block * high, min(high, rows - block * high)
            for row in range(here):
                worth[row] = quantise(x[first + row], codes[row], np.float32(most))
        begin = ticket % pieces * span
        for channel in range(begin, min(begin + span, channels), COLUMNS):
            right = words[8] + channel * padded
            for row in range(0, here, 2):
                left = codes.ctypes.data + row * padded * 2
                if row + 1 < here:
                    two_whole(left, padded * 2, right, 0, padded, sums.ctypes.data)
                else:
                    one_whole(left, padded * 2, right, 0, padded, sums.ctypes.data)
                for other in range(row, min(row + 2, here)):
                    for column in range(min(COLUMNS, channels - channel)):
                        share = np.float32(worth[other] * scale[channel + column])
                        total = np.float32(sums[(other - row) * COLUMNS + column])
                        found[first + other, channel + column] = np.float32(total * share) + bias[channel + column]
        for row in range(first, first + here):
            bend(found[row, begin : min(begin + span, words[13])], words[12])


@cfunc(TASK, cache=True)
def multiply_floating(task: Any) -> None:
    """x Wᵀ + b, all in float32; the width is a multiple of eight."""
    words = carray(task, (14,))
    rows, padded, channels, span = words[1], words[3], words[4], words[5]
    found, bias = carray(at_numbers(words[11]), (rows, channels)), carray(at_numbers(words[10]), (channels,))
    high, sums, line = min(rows, max(2, NEAR // (4 * padded))), np.empty(8, np.float32), 4 * padded
    pieces = (channels + span - 1) // span
    while True:
        ticket = take(task)
        if ticket >= pieces * ((rows + high - 1) // high):
            return
        first, begin = ticket // pieces * high, ticket % pieces * span
        last = min(first + high, rows)
        for channel in range(begin, min(begin + span, channels), COLUMNS):
            right = words[8] + channel * line
            for row in range(first, last, 2):
                left = words[7] + row * line
                if row + 1 < last:
                    two_woven(left, line, right, 0, padded, sums.ctypes.data)
                else:
                    one_woven(left, line, right, 0, padded, sums.ctypes.data)
                for other in range(row, min(row + 2, last)):
                    for column in range(min(COLUMNS, channels - channel)):
                        total = sums[(other - row) * COLUMNS + column]
                        found[other, channel + column] = total + bias[channel + column]
        for row in range(first, last):
            bend(found[row, begin : min(begin + span, words[13])], words[12])


@cfunc(TASK, cache=True)
def normalise_rows(task: Any) -> None:
    """A norm of every row: a few rows at a time."""
    words = carray(task, (9,))
    rows, width, epsilon = words[1], words[2], number_of(np.int32(words[8]))
    x, found = carray(at_numbers(words[4]), (rows, width)), carray(at_numbers(words[7]), (rows, width))
    weight, bias = carray(at_numbers(words[5]), (width,)), carray(at_numbers(words[6]), (width,))
    padded, sums = np.empty((width + 7) // 8 * 8, np.float32), np.empty(8, np.float32)
    ones = np.ones(padded.size // 8, np.float32)
    while True:
        first = take(task) * FEW
        if first >= rows:
            return
        for row in range(first, min(first + FEW, rows)):
            normalise(x[row], weight, bias, epsilon, words[3], found[row], padded, sums, ones)
