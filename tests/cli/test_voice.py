"""Of several processes only the first one speaks, except when somebody is lost."""

import io
import sys

import pytest

from peasy.training.crew import Lost


@pytest.fixture
def rank(monkeypatch):
    """This process as one of two; the streams that are muted come back."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(sys, "__stderr__", io.StringIO())

    def be(number: int) -> None:
        monkeypatch.setenv("RANK", str(number))
        monkeypatch.setenv("WORLD_SIZE", "2")

    return be


@pytest.mark.parametrize(("number", "speaks"), [(0, True), (1, False)])
def test_only_the_first_speaks(number, speaks, rank, peasy):
    rank(number)
    ran = peasy("version")
    assert ran.code == 0
    assert bool(ran.out) == speaks
    assert bool(peasy("versoin").err) == speaks


def test_a_loss_is_told_by_whoever_is_left(rank, peasy, raising):
    rank(1)
    raising(Lost("Process 0 of 2 is gone."))
    ran = peasy("greet")
    assert ran.code == 6
    assert "Process 0 of 2 is gone." in sys.__stderr__.getvalue()
