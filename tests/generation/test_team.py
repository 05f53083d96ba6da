"""Helpers of a thread go when they are told to: whoever computes has the processors to himself."""

import subprocess
import sys

import pytest

from peasy.generation.packed_team import find_team

pytestmark = pytest.mark.skipif(find_team() is None, reason="OpenMP's helpers are only known where torch brought GNU's")

BEGIN = """
import os, time, torch
from peasy.generation.packed_team import disband
from peasy.generation.engine import Engine
from peasy.generation.request import Request
from peasy.generation.runner import Runner
from peasy.models.build import build
from peasy.models.preset import preset

torch.set_num_threads(4)

def count():
    time.sleep(0.2)  # those that end need a moment
    return len(os.listdir("/proc/self/task"))

def work():
    return torch.rand(1000, 1000) @ torch.rand(1000, 1000)

first = count()
"""


def told(program):
    done = subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_helpers_go_and_come_again():
    first, working, alone, again = told(
        "work(); working = count(); disband(); alone = count(); work(); print(first, working, alone, count())"
    )
    assert working >= first + 3
    assert alone == first
    assert again == working


def test_whoever_starts_an_engine_and_an_engine_that_waits_have_none():
    first, working, started, idle = told(
        "model = build(preset('gpt-tiny', d_model=512), seed=1); work(); working = count()\n"
        "with Runner(Engine(model)) as runner:\n"
        "    started = count(); list(runner.submit(Request(tuple(range(1, 200)))))\n"
        "    print(first, working, started, count())"
    )
    assert working >= first + 3
    assert started == idle == first + 1
