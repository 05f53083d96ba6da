"""Free RAM, and a check before loading that a model fits."""

import os
from collections.abc import Iterator
from pathlib import Path

from peasy.errors import NoRoom

OVERHEAD = 1.1
"""Factor on the weights' size, for activations."""


def available() -> int | None:
    """Return the bytes this process may still allocate: free RAM, or less under a limit. None: unknown."""
    return min(_limits(), default=None)


def require(weights: int, what: str) -> None:
    """Raise NoRoom if `weights` bytes of weights do not fit into free memory."""
    free, needed = available(), int(weights * OVERHEAD)
    if free is not None and needed > free:
        raise NoRoom(
            f"{what} needs about {show_bytes(needed)} of memory; {show_bytes(free)} are free.",
            hint="Close other programs, or use a smaller model.",
        )


def show_bytes(count: float) -> str:
    """Format a number of bytes for people.

    >>> show_bytes(497_759_232), show_bytes(512)
    ('474.7 MiB', '512 bytes')
    """
    if count < 1024:
        return f"{count:.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:,.1f} TiB"


def _limits() -> Iterator[int]:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024
    group, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    if group.isdigit() and used.isdigit():
        yield int(group) - int(used) + _reclaimable()
    if os.name == "posix":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            yield max(0, soft - _mapped())


def _reclaimable() -> int:
    """Return the bytes of file pages, which the cgroup counts as used although the kernel can reclaim them."""
    for line in _read("/sys/fs/cgroup/memory.stat").splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _mapped() -> int:
    pages = _read("/proc/self/statm").split()
    return int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
