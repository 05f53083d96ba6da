"""PNG heat maps, decoded by an independent reader."""

import struct
import zlib

import numpy as np

from peasy.render import palette
from peasy.render.heatmap import heat_data_uri, heat_png, max_pool

SCALE = palette.ColourScale(0.0, 1.0, "sequential")


def read(png: bytes):
    """Return chunks and pixel codes of a palette PNG."""
    chunks, at = {}, 8
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        data = png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + data)
        chunks[kind], at = data, at + 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    codes = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    return chunks, codes[:, 1:]


def test_the_maximum_is_lightest_and_nan_is_transparent():
    chunks, codes = read(heat_png(np.array([[0.0, 1.0], [np.nan, 0.5]]), SCALE))
    colours, codes = chunks[b"PLTE"], codes.astype(int)
    assert colours[3 * codes[0, 1] : 3 * codes[0, 1] + 3].hex() == palette.CIVIDIS[-1][1:]
    assert colours[:3].hex() == palette.CIVIDIS[0][1:]
    assert chunks[b"tRNS"][codes[1, 0]] == 0
    assert chunks[b"tRNS"][codes[1, 1]] == 255


def test_cells_can_be_many_pixels():
    _, codes = read(heat_png(np.array([[0.0, 1.0]]), SCALE, upscale=3))
    assert codes.shape == (3, 6)
    assert set(codes[:, :3].ravel()) == {0}


def test_data_uri():
    assert heat_data_uri(np.eye(2), SCALE).startswith("data:image/png;base64,")


def test_max_pooling_ignores_nan():
    values = np.full((5, 7), np.nan)
    values[4, 6] = 0.25
    tiles, side = max_pool(values, 3)
    assert side == 3
    assert tiles.shape == (2, 3)
    assert tiles[1, 2] == 0.25
    assert np.isnan(tiles[0]).all()
    assert max_pool(values, 10)[1] == 1
