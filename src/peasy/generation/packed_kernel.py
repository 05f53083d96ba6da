"""Numba kernels compiled for this CPU: linear layers (int8, float32) with fused activations, and norms.

Threads take ranges of output channels from a shared counter: with few rows, time goes into reading the weights, and
each weight is read once. Integer sums are exact and float sums have a fixed order, so results are batch-invariant.
"""

import numpy as np
from numba import carray, cfunc, njit, types
from numpy import ndarray

from peasy.generation.packed_llvm import (
    TILE_COLUMNS,
    TaskPointer,
    bits_to_float,
    float32_pointer,
    float_to_bits,
    make_accumulate,
    make_tile,
    next_ticket,
)

TASK_SIGNATURE = types.void(types.CPointer(types.int64))

_ROUND_MAGIC = np.float32(12_582_912.0)
"""1.5 · 2²³: adding and subtracting it rounds a number below 2²² to the nearest integer."""

NORM_ROWS = 16
"""Rows normalised per task."""

_CACHE_BYTES = 98_304
"""Bytes of input rows that stay in the CPU cache while the weights stream through."""

ACTIVATION_CODES = {"relu": 1, "relu-squared": 2, "silu": 3, "gelu-tanh": 4}
"""Activations that can be fused into a linear layer."""

LOG2, LN2_HIGH, LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
_GELU_TANH_FACTOR = np.float32(-2 * 0.7978845608028654)
"""-2 √(2/π), for (1 + tanh u) / 2 = 1 / (1 + e⁻²ᵘ)."""

EXP_MIN, EXP_MAX = np.float32(-87.0), np.float32(88.0)
"""Range of x in which eˣ neither underflows nor overflows float32."""

INFINITY_BITS, ABS_MASK = np.int32(0x7F800000), np.int32(0x7FFFFFFF)
"""Bits of infinity, and the mask that clears the sign: the bits of |x| are ordered like |x|."""

tile_1_int8, tile_2_int8 = make_tile(1, integer=True, interleaved=True), make_tile(2, integer=True, interleaved=True)
tile_1_packed_float32, tile_2_packed_float32 = (
    make_tile(1, integer=False, interleaved=True),
    make_tile(2, integer=False, interleaved=True),
)
tile_1_float32, tile_2_float32 = (
    make_tile(1, integer=False, interleaved=False),
    make_tile(2, integer=False, interleaved=False),
)
_sum_vectors = make_accumulate(1, 1)


@njit(error_model="numpy")
def quantise(x: ndarray, codes: ndarray, max_code: np.float32) -> np.float32:
    """Quantise a row to integers up to `max_code`; return the scale, NaN if the row is not finite."""
    largest_bits = np.int32(0)
    for index in range(x.size):
        largest_bits = max(largest_bits, np.int32(float_to_bits(x[index]) & ABS_MASK))
    largest = np.float32(np.nan) if largest_bits >= INFINITY_BITS else bits_to_float(largest_bits)
    factor = np.float32(min(max_code / largest, np.float32(3e38))) if largest > 0 else np.float32(0)
    for index in range(x.size):
        codes[index] = np.int16((np.float32(x[index] * factor) + _ROUND_MAGIC) - _ROUND_MAGIC)
    codes[x.size :] = 0
    return np.float32(largest / max_code)


@njit(error_model="numpy")
def exp_float32(x: np.float32) -> np.float32:
    """Vectorisable eˣ, exact to one unit in the last place: 2ⁿ times a polynomial of the remainder."""
    x = min(max(x, EXP_MIN), EXP_MAX)
    exponent = np.int32(np.floor(np.float32(x * LOG2) + np.float32(0.5)))
    n = np.float32(exponent)
    rest = np.float32(np.float32(x - np.float32(n * LN2_HIGH)) - np.float32(n * LN2_LOW))
    power = np.float32(1 / 5040)
    power = np.float32(power * rest) + np.float32(1 / 720)
    power = np.float32(power * rest) + np.float32(1 / 120)
    power = np.float32(power * rest) + np.float32(1 / 24)
    power = np.float32(power * rest) + np.float32(1 / 6)
    power = np.float32(power * rest) + np.float32(0.5)
    power = np.float32(power * rest) + np.float32(1)
    power = np.float32(power * rest) + np.float32(1)
    return np.float32(power * bits_to_float(np.int32((exponent + np.int32(127)) << 23)))


@njit(error_model="numpy")
def _activate(row: ndarray, code: int) -> None:
    """Apply an activation in place."""
    if code == 1:
        for index in range(row.size):
            row[index] = np.float32(0) if row[index] < 0 else row[index]
    elif code == 2:
        for index in range(row.size):
            row[index] = np.float32(0) if row[index] < 0 else np.float32(row[index] * row[index])
    elif code == 3:
        for index in range(row.size):
            row[index] = np.float32(row[index] / np.float32(np.float32(1) + exp_float32(-row[index])))
    elif code == 4:
        for index in range(row.size):
            x = row[index]
            inner = np.float32(x + np.float32(np.float32(0.044715) * np.float32(x * np.float32(x * x))))
            row[index] = np.float32(x / np.float32(np.float32(1) + exp_float32(np.float32(_GELU_TANH_FACTOR * inner))))


@njit(error_model="numpy")
def normalise(
    x: ndarray,
    weight: ndarray,
    bias: ndarray,
    epsilon: np.float32,
    subtract_mean: int,
    output: ndarray,
    padded: ndarray,
    sums: ndarray,
    ones: ndarray,
) -> None:
    """LayerNorm (`subtract_mean`) or RMSNorm of a row; `padded` is scratch space for the row, zero-padded."""
    width, padded_address = x.size, padded.ctypes.data
    padded[:width], padded[width:] = x, 0
    mean = np.float32(0)
    if subtract_mean:
        sums[:] = 0
        _sum_vectors(ones.ctypes.data, 0, padded_address, 32, padded.size // 8, sums.ctypes.data, 0)
        pairs = np.float32(sums[0] + sums[1]) + np.float32(sums[2] + sums[3])
        mean = (pairs + (np.float32(sums[4] + sums[5]) + np.float32(sums[6] + sums[7]))) / np.float32(width)
    for index in range(width):
        padded[index] = np.float32(x[index] - mean)
    tile_1_float32(padded_address, 0, padded_address, 0, padded.size, sums.ctypes.data)
    inverse = np.float32(1) / np.float32(np.sqrt(np.float32(sums[0] / np.float32(width)) + epsilon))
    for index in range(width):
        output[index] = np.float32(np.float32(padded[index] * inverse) * weight[index]) + bias[index]


@cfunc(TASK_SIGNATURE, cache=True)
def linear_int8(task: TaskPointer) -> None:
    """x Wᵀ + b with int8 weights; each row of x is quantised to up to 16 bits with its own scale."""
    words = carray(task, (14,))
    rows, width, padded, channels, range_size, max_code = words[1], words[2], words[3], words[4], words[5], words[6]
    x, output = carray(float32_pointer(words[7]), (rows, width)), carray(float32_pointer(words[11]), (rows, channels))
    scale, bias = carray(float32_pointer(words[9]), (channels,)), carray(float32_pointer(words[10]), (channels,))
    block_rows = min(rows, max(2, _CACHE_BYTES // (2 * padded)))
    codes, row_scale = np.empty((block_rows, padded), np.int16), np.empty(block_rows, np.float32)
    sums = np.empty(8, np.int32)
    ranges, block, first, num_rows = (channels + range_size - 1) // range_size, -1, 0, 0
    while True:
        ticket = next_ticket(task)
        if ticket >= ranges * ((rows + block_rows - 1) // block_rows):
            return
        if ticket // ranges != block:
            block = ticket // ranges
            first, num_rows = block * block_rows, min(block_rows, rows - block * block_rows)
            for row in range(num_rows):
                row_scale[row] = quantise(x[first + row], codes[row], np.float32(max_code))
        channel_start = ticket % ranges * range_size
        for channel in range(channel_start, min(channel_start + range_size, channels), TILE_COLUMNS):
            right = words[8] + channel * padded
            for row in range(0, num_rows, 2):
                left = codes.ctypes.data + row * padded * 2
                if row + 1 < num_rows:
                    tile_2_int8(left, padded * 2, right, 0, padded, sums.ctypes.data)
                else:
                    tile_1_int8(left, padded * 2, right, 0, padded, sums.ctypes.data)
                for tile_row in range(row, min(row + 2, num_rows)):
                    for column in range(min(TILE_COLUMNS, channels - channel)):
                        factor = np.float32(row_scale[tile_row] * scale[channel + column])
                        total = np.float32(sums[(tile_row - row) * TILE_COLUMNS + column])
                        output[first + tile_row, channel + column] = np.float32(total * factor) + bias[channel + column]
        for row in range(first, first + num_rows):
            _activate(output[row, channel_start : min(channel_start + range_size, words[13])], words[12])


@cfunc(TASK_SIGNATURE, cache=True)
def linear_float32(task: TaskPointer) -> None:
    """x Wᵀ + b in float32; the width is a multiple of eight."""
    words = carray(task, (14,))
    rows, padded, channels, range_size = words[1], words[3], words[4], words[5]
    output, bias = carray(float32_pointer(words[11]), (rows, channels)), carray(float32_pointer(words[10]), (channels,))
    block_rows, sums, row_bytes = min(rows, max(2, _CACHE_BYTES // (4 * padded))), np.empty(8, np.float32), 4 * padded
    ranges = (channels + range_size - 1) // range_size
    while True:
        ticket = next_ticket(task)
        if ticket >= ranges * ((rows + block_rows - 1) // block_rows):
            return
        first, channel_start = ticket // ranges * block_rows, ticket % ranges * range_size
        last = min(first + block_rows, rows)
        for channel in range(channel_start, min(channel_start + range_size, channels), TILE_COLUMNS):
            right = words[8] + channel * row_bytes
            for row in range(first, last, 2):
                left = words[7] + row * row_bytes
                if row + 1 < last:
                    tile_2_packed_float32(left, row_bytes, right, 0, padded, sums.ctypes.data)
                else:
                    tile_1_packed_float32(left, row_bytes, right, 0, padded, sums.ctypes.data)
                for tile_row in range(row, min(row + 2, last)):
                    for column in range(min(TILE_COLUMNS, channels - channel)):
                        total = sums[(tile_row - row) * TILE_COLUMNS + column]
                        output[tile_row, channel + column] = total + bias[channel + column]
        for row in range(first, last):
            _activate(output[row, channel_start : min(channel_start + range_size, words[13])], words[12])


@cfunc(TASK_SIGNATURE, cache=True)
def normalise_rows(task: TaskPointer) -> None:
    """Normalise every row, a few rows per task."""
    words = carray(task, (9,))
    rows, width, epsilon = words[1], words[2], bits_to_float(np.int32(words[8]))
    x, output = carray(float32_pointer(words[4]), (rows, width)), carray(float32_pointer(words[7]), (rows, width))
    weight, bias = carray(float32_pointer(words[5]), (width,)), carray(float32_pointer(words[6]), (width,))
    padded, sums = np.empty((width + 7) // 8 * 8, np.float32), np.empty(8, np.float32)
    ones = np.ones(padded.size // 8, np.float32)
    while True:
        first = next_ticket(task) * NORM_ROWS
        if first >= rows:
            return
        for row in range(first, min(first + NORM_ROWS, rows)):
            normalise(x[row], weight, bias, epsilon, words[3], output[row], padded, sums, ones)
