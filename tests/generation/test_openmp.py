"""OpenMP workers of a thread are released on request, so that the computing thread has the CPUs."""

import subprocess
import sys

import pytest

from peasy.generation.openmp import gomp_parallel

pytestmark = pytest.mark.skipif(gomp_parallel() is None, reason="only libgomp's workers can be released")

SETUP = """
import os, time, torch
from peasy.generation.openmp import release_openmp_threads
from peasy.generation.engine import Engine
from peasy.generation.request import Request
from peasy.generation.engine_thread import EngineThread
from peasy.models.build import build
from peasy.models.preset import preset

torch.set_num_threads(4)

def count():
    numbers = []  # ending threads need a moment: wait until their number stays the same
    while len(numbers) < 500 and (len(numbers) < 10 or len(set(numbers[-10:])) > 1):
        numbers.append(len(os.listdir("/proc/self/task")))
        time.sleep(0.02)
    return numbers[-1]

def work():
    return torch.rand(1000, 1000) @ torch.rand(1000, 1000)

first = count()
"""


def run_program(program):
    done = subprocess.run([sys.executable, "-c", SETUP + program], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_openmp_workers_are_released_and_recreated():
    first, working, alone, again = run_program(
        "work(); working = count(); release_openmp_threads(); alone = count(); work()\n"
        "print(first, working, alone, count())"
    )
    assert working >= first + 3
    assert alone == first
    assert again == working


def test_starting_and_idle_engines_hold_no_openmp_workers():
    first, working, started, idle = run_program(
        "model = build(preset('gpt-tiny', d_model=512), seed=1); work(); working = count()\n"
        "with EngineThread(Engine(model)) as thread:\n"
        "    started = count(); list(thread.engine.submit(Request(tuple(range(1, 200)))))\n"
        "    print(first, working, started, count())"
    )
    assert working >= first + 3
    assert started == idle == first + 1
