"""Runs kernels on torch's OpenMP threads instead of a second pool.

A compiled function is passed to the libgomp that torch has loaded, so that it starts within two microseconds on the
same spinning worker threads as torch's own operations.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache

import torch


def run_on_openmp_team(address: int, task: "ctypes.Array[ctypes.c_int64]", *, single_thread: bool = False) -> None:
    """Call the function at `address` in each of torch's threads with the same task, or only in this thread."""
    threads, parallel = torch.get_num_threads(), gomp_parallel()
    if single_thread or parallel is None or threads == 1:
        _as_function(address)(ctypes.addressof(task))
    else:
        parallel(address, task, threads, 0)


@cache
def gomp_parallel() -> Callable[..., None] | None:
    """Return GOMP_parallel of the libgomp that torch has loaded, or None if torch uses another OpenMP."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        parallel = ctypes.CDLL("libgomp.so.1").GOMP_parallel
    except (OSError, AttributeError):
        return None
    parallel.argtypes, parallel.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return parallel


def release_openmp_threads() -> None:
    """Release this thread's OpenMP workers; they are created again on demand.

    Each computing thread has its own workers. When there are more than CPUs, OpenMP stops spinning, and every parallel
    region starts late: an engine would decode at half speed because another thread once ran a product.
    """
    pause = _omp_pause()
    if pause is not None:
        pause(_OMP_PAUSE_SOFT)


@cache
def _omp_pause() -> Callable[[int], int] | None:
    if gomp_parallel() is None:
        return None
    return getattr(ctypes.CDLL("libgomp.so.1"), "omp_pause_resource_all", None)


_OMP_PAUSE_SOFT = 1


@cache
def _as_function(address: int) -> Callable[[int], None]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
