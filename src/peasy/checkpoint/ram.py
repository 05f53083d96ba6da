"""Free RAM, a check before loading that a model fits, and amounts of bytes as text."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from peasy.errors import InvalidInput, ResourceUnavailable

_ACTIVATION_OVERHEAD = 1.1
"""Factor on the weights' size, for activations."""


def available_ram() -> int | None:
    """Return the bytes this process may still allocate: free RAM, or less under a limit. None: unknown."""
    return min(_memory_limits(), default=None)


def require_ram(weight_bytes: int, name: str) -> None:
    """Raise ResourceUnavailable if `weight_bytes` bytes of weights do not fit into free memory."""
    free, needed = available_ram(), int(weight_bytes * _ACTIVATION_OVERHEAD)
    if free is not None and needed > free:
        message = f"{name} needs about {format_bytes(needed)} of memory; {format_bytes(free)} are free."
        raise ResourceUnavailable(message, hint="Close other programs, or use a smaller model.")


def format_bytes(num_bytes: float) -> str:
    """Format a number of bytes for people.

    >>> format_bytes(497_759_232), format_bytes(512)
    ('474.7 MiB', '512 bytes')
    """
    if num_bytes < 1024:
        return f"{num_bytes:.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        num_bytes /= 1024
        if num_bytes < 1024:
            return f"{num_bytes:.1f} {unit}"
    return f"{num_bytes / 1024:,.1f} TiB"


def parse_amount(text: str | float) -> float:
    """Parse a number of bytes, FLOP/s or bytes/s with a unit prefix.

    >>> parse_amount("80GB"), parse_amount("312T"), parse_amount("0.5 GiB"), parse_amount(1e9)
    (80000000000.0, 312000000000000.0, 536870912.0, 1000000000.0)
    """
    pattern = r"(\d*\.?\d+(?:e[+-]?\d+)?)\s*([kmgtp]?)(i?)(?:B|FLOP)?(?:/s)?"
    match = re.fullmatch(pattern, str(text).strip(), re.IGNORECASE)
    if match is None:
        raise InvalidInput(f'"{text}" is not a valid amount.', hint="For example 80GB, 64GiB, 312T or 1e12.")
    number, prefix, binary = match.groups()
    return float(number) * (1024.0 if binary else 1000.0) ** " kmgtp".index(prefix.lower() or " ")


def _memory_limits() -> Iterator[int]:
    for line in _read_text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024
    group, used = _read_text("/sys/fs/cgroup/memory.max").strip(), _read_text("/sys/fs/cgroup/memory.current").strip()
    if group.isdigit() and used.isdigit():
        # file pages count as used in a cgroup, although the kernel can reclaim them
        stat = dict(line.split() for line in _read_text("/sys/fs/cgroup/memory.stat").splitlines())
        yield int(group) - int(used) + int(stat.get("inactive_file", 0))
    if sys.platform != "win32":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            mapped_pages = int((_read_text("/proc/self/statm").split() or ["0"])[0])
            yield max(0, soft - mapped_pages * os.sysconf("SC_PAGE_SIZE"))


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
