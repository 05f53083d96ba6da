"""Memory settings of the server process."""

import os
import platform
import subprocess
import sys

import pytest

from peasy.server import server


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heaps of threads are glibc's")
def test_threads_share_one_malloc_arena():
    """The inverse: by default the same work creates more arenas."""
    work = (
        "import ctypes, sys, threading\n"
        "from peasy.server.server import limit_memory_growth\n"
        "limit_memory_growth() if 'share' in sys.argv else None\n"
        "held, gate = [], threading.Barrier(4)\n"
        "def take():\n    gate.wait()\n    held.extend(bytes(5000) for _ in range(2000))\n    gate.wait()\n"
        "threads = [threading.Thread(target=take) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n[thread.join() for thread in threads]\n"
        "ctypes.CDLL(None).malloc_stats()\n"
    )
    heaps = [
        subprocess.run([sys.executable, "-c", work, *words], capture_output=True, text=True).stderr.count("Arena ")
        for words in (["share"], [])
    ]
    assert heaps[0] == 1 < heaps[1]


def test_onednn_cache_is_bounded_unless_set(monkeypatch):
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "")
    monkeypatch.delenv("LRU_CACHE_CAPACITY")
    server.limit_memory_growth()
    assert (os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"], os.environ["LRU_CACHE_CAPACITY"]) == ("7", "64")
