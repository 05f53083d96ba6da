"""How many bytes a look would keep, asked before the run; what does not fit is refused with the figure."""

import re

from peasy.checkpoint.memory import show_bytes
from peasy.errors import InvalidInput, NoRoom

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"([0-9]*\.?[0-9]+)\s*([A-Za-z]*)")


def read_bytes(told: str | int) -> int:
    """A number of bytes as people write it.

    >>> read_bytes("512MB"), read_bytes("0.5 GiB"), read_bytes(4096)
    (512000000, 536870912, 4096)
    """
    found = _SIZE.fullmatch(str(told).strip())
    if found is None or found[2].upper() not in _UNITS:
        raise InvalidInput(f'A budget of "{told}" is no number of bytes.', hint="For example 512MB or 2GiB.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def choose_storage(numbers: int, budget: int, storage: str = "auto") -> str:
    """The dtype in which so many numbers fit: float32, else float16; an error with the figure where neither does.

    >>> choose_storage(1000, 4000), choose_storage(1000, 2000)
    ('float32', 'float16')
    """
    wanted = ("float32", "float16") if storage == "auto" else (storage,)
    for name in wanted:
        if numbers * (2 if name == "float16" else 4) <= budget:
            return name
    needed = numbers * (2 if wanted[-1] == "float16" else 4)
    raise NoRoom(
        f"This would keep {show_bytes(needed)} in {wanted[-1]}, and the budget is {show_bytes(budget)}.",
        hint='Ask for fewer layers, heads or rows, for overview="mean", or give a larger budget.',
    )
