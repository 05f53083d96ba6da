"""Signals: the first is recorded, the second ends the process."""

import signal
import subprocess
import sys
import threading

import pytest

from peasy.training.signals import stop_on_signal

WAIT = """
import time
from peasy.training.signals import stop_on_signal
with stop_on_signal() as stop:
    print("ready", flush=True)
    while not stop.requested:
        time.sleep(0.01)
    print("requested", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_is_recorded(number):
    before = signal.getsignal(number)
    with stop_on_signal() as stop:
        assert not stop.requested
        signal.raise_signal(number)
        assert stop.signal == number
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_acts_at_once_while_there_is_nothing_to_save(number, ends):
    with pytest.raises(ends), stop_on_signal(at_once=True):
        signal.raise_signal(number)
    with stop_on_signal(at_once=True) as stop:
        stop.at_once = False
        signal.raise_signal(number)
        assert stop.requested


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_ends_the_process(second):
    waiting = subprocess.Popen([sys.executable, "-c", WAIT], stdout=subprocess.PIPE, text=True)
    assert waiting.stdout.readline() == "ready\n"
    waiting.send_signal(signal.SIGTERM)
    assert waiting.stdout.readline() == "requested\n"
    waiting.send_signal(second)
    assert waiting.wait(timeout=10) == -second


def test_other_threads_are_unaffected():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def run() -> None:
        with stop_on_signal() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
