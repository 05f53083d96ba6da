"""The door: what is set before anybody comes in."""

import platform
import subprocess
import sys

import pytest


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heaps of threads are glibc's")
def test_threads_share_one_heap():
    """The inverse beside it: left to itself, the same work makes more heaps."""
    work = (
        "import ctypes, sys, threading\n"
        "from peasy.studio.door import share_heap\n"
        "share_heap() if 'share' in sys.argv else None\n"
        "held, gate = [], threading.Barrier(4)\n"
        "def take():\n    gate.wait()\n    held.extend(bytes(5000) for _ in range(2000))\n    gate.wait()\n"
        "threads = [threading.Thread(target=take) for _ in range(4)]\n"
        "[each.start() for each in threads]\n[each.join() for each in threads]\n"
        "ctypes.CDLL(None).malloc_stats()\n"
    )
    heaps = [
        subprocess.run([sys.executable, "-c", work, *words], capture_output=True, text=True).stderr.count("Arena ")
        for words in (["share"], [])
    ]
    assert heaps[0] == 1 < heaps[1]
