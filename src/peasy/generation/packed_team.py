"""Runs kernels on torch's OpenMP threads instead of a second pool.

A compiled function is passed to the libgomp that torch has loaded, so that it starts within two microseconds on the
same spinning worker threads as torch's own operations.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch


def share(address: int, task: Any, *, alone: bool = False) -> None:
    """Call the function at `address` in each of torch's threads with the same task, or only in this thread."""
    threads, parallel = torch.get_num_threads(), find_team()
    if alone or parallel is None or threads == 1:
        _function(address)(ctypes.addressof(task))
    else:
        parallel(address, task, threads, 0)


@cache
def find_team() -> Callable[..., None] | None:
    """Return GOMP_parallel of the libgomp that torch has loaded, or None if torch uses another OpenMP."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        parallel = ctypes.CDLL("libgomp.so.1").GOMP_parallel
    except (OSError, AttributeError):
        return None
    parallel.argtypes, parallel.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return parallel


def disband() -> None:
    """Release this thread's OpenMP workers; they are created again on demand.

    Each computing thread has its own workers. When there are more than CPUs, OpenMP stops spinning, and every parallel
    region starts late: an engine would decode at half speed because another thread once ran a product.
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
