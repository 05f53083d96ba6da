"""The kernel: products compiled for this very processor, where numba is installed.

The threads take turns at the channels, a piece at a time: with few rows, reading the weights is what takes the time,
and every weight is read once. Whole numbers are summed without any rounding, and floating ones always in the same
order, so that a row has the same bits in any company.
"""

from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types

from peasy.generation.packed_machine import COLUMNS, at_numbers, bits_of, make_tile, number_of, take

TASK = types.void(types.CPointer(types.int64))

ROUND = np.float32(12_582_912.0)
"""1.5 · 2²³: a number of fewer than 22 bits plus this, minus this, is the nearest whole number."""

NEAR = 98_304
"""So many bytes of rows are kept near while the weights pass by."""

FINITE, MAGNITUDE = np.int32(0x7F800000), np.int32(0x7FFFFFFF)
"""Without their sign the bits of finite numbers lie below the first, and are ordered like the numbers."""

one_whole, two_whole = make_tile(1, whole=True), make_tile(2, whole=True)
one_floating, two_floating = make_tile(1, whole=False), make_tile(2, whole=False)


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


@cfunc(TASK, cache=True)
def multiply_whole(task: Any) -> None:
    """x Wᵀ + b with weights of 8 bits; each row of x is written in up to 16, by a scale of its own."""
    words = carray(task, (12,))
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
                    two_whole(left, padded * 2, right, padded, padded, sums.ctypes.data)
                else:
                    one_whole(left, padded * 2, right, padded, padded, sums.ctypes.data)
                for other in range(row, min(row + 2, here)):
                    for column in range(min(COLUMNS, channels - channel)):
                        share = np.float32(worth[other] * scale[channel + column])
                        total = np.float32(sums[(other - row) * COLUMNS + column])
                        found[first + other, channel + column] = np.float32(total * share) + bias[channel + column]


@cfunc(TASK, cache=True)
def multiply_floating(task: Any) -> None:
    """x Wᵀ + b, all in float32; the width is a multiple of eight."""
    words = carray(task, (12,))
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
                    two_floating(left, line, right, line, padded, sums.ctypes.data)
                else:
                    one_floating(left, line, right, line, padded, sums.ctypes.data)
                for other in range(row, min(row + 2, last)):
                    for column in range(min(COLUMNS, channels - channel)):
                        total = sums[(other - row) * COLUMNS + column]
                        found[other, channel + column] = total + bias[channel + column]
