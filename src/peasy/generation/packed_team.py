"""Work that is shared by the threads torch has already: no second crowd that waits busily beside the first.

Torch's threads are those of OpenMP. Its library starts them and lets them wait; a function of the machine is handed
to the same library, so that a product here begins within two microseconds and takes turns with torch's own.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch


def share(address: int, task: Any, *, alone: bool = False) -> None:
    """Call the function at `address` once in each of torch's threads, all with the same task; or only in this one."""
    threads, team = torch.get_num_threads(), find_team()
    if alone or team is None or threads == 1:
        _function(address)(ctypes.addressof(task))
    else:
        team(address, task, threads, 0)


@cache
def find_team() -> Callable[..., None] | None:
    """OpenMP's own call, from the library that torch has loaded; None where torch came with another."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        team = ctypes.CDLL("libgomp.so.1").GOMP_parallel
    except (OSError, AttributeError):
        return None
    team.argtypes, team.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return team


def disband() -> None:
    """Let this thread's helpers go; they come again when they are needed.

    Each thread that computes has its own. As soon as there are more of them than processors, OpenMP lets none wait
    busily any more, and every product of every thread begins late: an engine would write at half its speed because
    somebody else has once multiplied something.
    """
    pause = _find_pause()
    if pause is not None:
        pause(_SOFT)


@cache
def _find_pause() -> Callable[[int], int] | None:
    if find_team() is None:
        return None
    return getattr(ctypes.CDLL("libgomp.so.1"), "omp_pause_resource_all", None)


_SOFT = 1


@cache
def _function(address: int) -> Callable[[int], None]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
