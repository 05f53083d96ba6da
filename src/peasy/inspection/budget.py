"""Memory budget of a capture: parse byte sizes and choose a dtype that fits, before the model runs."""

import re

from peasy.checkpoint.ram import format_bytes
from peasy.errors import InvalidInput, ResourceUnavailable

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"([0-9]*\.?[0-9]+)\s*([A-Za-z]*)")


def parse_bytes(text: str | int) -> int:
    """Parse a byte size such as 512MB or 2GiB.

    >>> parse_bytes("512MB"), parse_bytes("0.5 GiB"), parse_bytes(4096)
    (512000000, 536870912, 4096)
    """
    match = _SIZE.fullmatch(str(text).strip())
    if match is None or match[2].upper() not in _UNITS:
        raise InvalidInput(f'"{text}" is not a number of bytes.', hint="For example 512MB or 2GiB.")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def choose_storage(num_values: int, budget: int, storage: str = "auto") -> str:
    """Return the dtype in which this many values fit the budget: float32, else float16; raise if neither does.

    >>> choose_storage(1000, 4000), choose_storage(1000, 2000)
    ('float32', 'float16')
    """
    dtypes = ("float32", "float16") if storage == "auto" else (storage,)
    for dtype in dtypes:
        if num_values * (2 if dtype == "float16" else 4) <= budget:
            return dtype
    needed = num_values * (2 if dtypes[-1] == "float16" else 4)
    raise ResourceUnavailable(
        f"This would keep {format_bytes(needed)} in {dtypes[-1]}, but the budget is {format_bytes(budget)}.",
        hint='Choose fewer layers, heads or queries, or overview="mean", or raise max_memory.',
    )
