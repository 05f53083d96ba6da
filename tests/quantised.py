"""Decoder of quantised arrays, as the page has it."""

import base64
import zlib

import numpy as np


def unpack(packed):
    """Decode a quantised array, as the page does."""
    dtype = np.dtype("<u2" if packed["bytes"] == 2 else "u1")
    codes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), dtype).reshape(packed["shape"])
    last = np.iinfo(dtype).max
    step = (packed["high"] - packed["low"]) / (last - 1)
    return np.where(codes == last, np.nan, packed["low"] + codes * step)
