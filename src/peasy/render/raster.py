"""Heat map as a PNG image with a colour palette, written with the standard library only."""

import base64
import struct
import zlib
from functools import cache

import numpy as np

from peasy.render import palette

_NUM_COLOURS = 200
"""Number of palette colours; one more, transparent, is used for NaN."""


def heat_png(values: np.ndarray, scale: palette.ColourScale, upscale: int = 1) -> bytes:
    """Return a PNG with `upscale` by `upscale` pixels per cell; NaN is transparent."""
    span = scale.high - scale.low
    with np.errstate(invalid="ignore"):
        share = np.clip((values - scale.low) / span, 0, 1) if span > 0 else np.where(np.isfinite(values), 0.5, np.nan)
        share = np.sqrt(share) if scale.lifted else share
        codes = np.where(np.isfinite(share), np.rint(share * (_NUM_COLOURS - 1)), _NUM_COLOURS).astype(np.uint8)
    codes = codes.repeat(upscale, axis=0).repeat(upscale, axis=1)
    height, width = codes.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), codes], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", header), (b"PLTE", _colour_table(scale.palette)), (b"tRNS", b"\xff" * _NUM_COLOURS + b"\0"),
        (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""),
    )  # fmt: skip
    packed = (struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def heat_data_uri(values: np.ndarray, scale: palette.ColourScale, upscale: int = 1) -> str:
    """Return the PNG as a data URI."""
    return "data:image/png;base64," + base64.b64encode(heat_png(values, scale, upscale)).decode("ascii")


def max_pool(values: np.ndarray, max_size: int) -> tuple[np.ndarray, int]:
    """Max-pool the last two axes to at most `max_size` tiles; return the tiles and their side length.

    >>> max_pool(np.arange(16.0).reshape(4, 4), 2)[0].tolist()
    [[5.0, 7.0], [13.0, 15.0]]
    """
    side = -(-max(values.shape[-2:]) // max_size)
    if side <= 1:
        return values, 1
    rows, columns = (-(-size // side) * side for size in values.shape[-2:])
    pad = [(0, 0)] * (values.ndim - 2) + [(0, rows - values.shape[-2]), (0, columns - values.shape[-1])]
    padded = np.pad(np.where(np.isfinite(values), values, -np.inf), pad, constant_values=-np.inf)
    tiles = padded.reshape(*values.shape[:-2], rows // side, side, columns // side, side).max(axis=(-3, -1))
    return np.where(np.isfinite(tiles), tiles, np.nan), side


@cache
def _colour_table(name: str) -> bytes:
    colours = (palette.colour(name, shade / (_NUM_COLOURS - 1)) for shade in range(_NUM_COLOURS))
    return b"".join(bytes.fromhex(colour[1:]) for colour in colours) + b"\0\0\0"
