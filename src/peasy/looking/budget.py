"""Memory budget of a capture: parse byte sizes and choose a dtype that fits, before the model runs."""

import re

from peasy.checkpoint.memory import show_bytes
from peasy.errors import InvalidInput, NoRoom

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"([0-9]*\.?[0-9]+)\s*([A-Za-z]*)")


def read_bytes(told: str | int) -> int:
    """Parse a byte size such as 512MB or 2GiB.

    >>> read_bytes("512MB"), read_bytes("0.5 GiB"), read_bytes(4096)
    (512000000, 536870912, 4096)
    """
    match = _SIZE.fullmatch(str(told).strip())
    if match is None or match[2].upper() not in _UNITS:
        raise InvalidInput(f'"{told}" is not a number of bytes.', hint="For example 512MB or 2GiB.")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def choose_storage(numbers: int, budget: int, storage: str = "auto") -> str:
    """Return the dtype in which this many values fit the budget: float32, else float16; raise if neither does.

    >>> choose_storage(1000, 4000), choose_storage(1000, 2000)
    ('float32', 'float16')
    """
    dtypes = ("float32", "float16") if storage == "auto" else (storage,)
    for dtype in dtypes:
        if numbers * (2 if dtype == "float16" else 4) <= budget:
            return dtype
    needed = numbers * (2 if dtypes[-1] == "float16" else 4)
    raise NoRoom(
        f"This would keep {show_bytes(needed)} in {dtypes[-1]}, but the budget is {show_bytes(budget)}.",
        hint='Choose fewer layers, heads or rows, or overview="mean", or give a larger budget.',
    )
