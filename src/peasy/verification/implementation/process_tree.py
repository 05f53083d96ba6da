"""Descendants of a process: found and ended on Linux, macOS and Windows, also those that detached themselves."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "PEASY_EXAMINATION"
"""Environment variable that descendants inherit, so that they are found when their parent has ended."""


def descendants(process: int, mark: str = "") -> list[int]:
    """Return the ids of all living descendants of a process, and of processes with its mark in their environment."""
    parents = _linux_parents() if sys.platform == "linux" else _parents_by_ps()
    found: list[int] = []
    pending = [process]
    while pending:
        parent = pending.pop()
        children = [child for child, its_parent in parents.items() if its_parent == parent and child not in found]
        found += children
        pending += children
    if mark and sys.platform == "linux":
        found += [each for each in parents if each not in (*found, process, os.getpid()) and _has_mark(each, mark)]
    return found


def end_tree(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a process and all its descendants; it is stopped first, so that no more can start."""
    if sys.platform == "win32":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
        process.wait()
        return
    if process.poll() is None:
        _signal(process.pid, signal.SIGSTOP)
    for _ in range(100):
        left = descendants(process.pid, mark)
        for each in left:
            _signal(each, signal.SIGKILL)
        if not left:
            break
        _reap_orphans(process, left)
    if process.poll() is None:
        process.kill()
    process.wait()


def _reap_orphans(process: subprocess.Popen[bytes], left: list[int]) -> None:
    """Let a stopped parent's ended children count as ended: only it could collect them."""
    time.sleep(0.01)
    if all(_is_zombie(each) for each in left) and process.poll() is None:
        process.kill()
        process.wait()


def _is_zombie(process: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return True


def _signal(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _linux_parents() -> dict[int, int]:
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    parents[int(entry)] = int(fields[1])
    return parents


def _has_mark(process: int, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _parents_by_ps() -> dict[int, int]:
    listed = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    rows = (line.split() for line in listed.splitlines())
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2}
