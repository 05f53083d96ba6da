"""Under torchrun only rank 0 prints, except when a rank is lost."""

import contextlib
import io
import queue
import sys
import threading

import pytest

from peasy.training.distributed import RankLost


@pytest.fixture
def rank(monkeypatch):
    """Set the rank of this process, of two; muted streams are restored."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(sys, "__stderr__", io.StringIO())

    def set_rank(number: int) -> None:
        monkeypatch.setenv("RANK", str(number))
        monkeypatch.setenv("WORLD_SIZE", "2")

    return set_rank


@pytest.mark.parametrize(("number", "prints"), [(0, True), (1, False)])
def test_only_rank_0_prints(number, prints, rank, peasy):
    rank(number)
    ran = peasy("version")
    assert ran.code == 0
    assert bool(ran.out) == prints
    assert bool(peasy("versoin").err) == prints


def test_lost_rank_is_reported_by_the_others(rank, peasy, raising):
    rank(1)
    raising(RankLost("Process 0 of 2 is gone."))
    ran = peasy("greet")
    assert ran.code == 6
    assert "Process 0 of 2 is gone." in sys.__stderr__.getvalue()


def test_progress_into_a_pipe_is_a_line_every_few_seconds(capsys, monkeypatch):
    from peasy.cli import output
    from peasy.cli.command import Flags

    clock = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: clock[0])
    line, quiet = output.ProgressLine("reading", Flags()), output.ProgressLine("reading", Flags(quiet=True))
    for done in range(1, 101):
        clock[0] += 0.2
        line(done, 100)
        quiet(done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3, "20 seconds, one line every 5"
    assert lines[0].endswith("% of 100 · 5/s · 15 s left")


def test_progress_counts_from_its_first_call(capsys, monkeypatch):
    from peasy.cli import output
    from peasy.cli.command import Flags

    clock = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: clock[0])
    line = output.ProgressLine("tokenizing", Flags(), unit=" characters")
    clock[0] += 60.0  # something else came first
    line(0, 1000)
    clock[0] += 6.0
    line(60, 1000)
    assert capsys.readouterr().err.splitlines()[-1] == "tokenizing 6% of 1,000 characters · 10/s · 1 min 34 s left"


def test_frequent_milestones_do_not_hold_back_the_progress_line(capsys, monkeypatch):
    from peasy.cli import output
    from peasy.cli.command import Flags

    clock = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: clock[0])
    line = output.ProgressLine("training", Flags())
    for done in range(1, 5):
        clock[0] += 2.0
        line.print(f"validated {done}")
        line(done, 10)
    assert capsys.readouterr().err.splitlines() == [
        "validated 1", "validated 2", "validated 3", "training 30% of 10 · 0/s · 14 s left", "validated 4",
    ]  # fmt: skip


def test_waiting_into_a_pipe_is_a_line_every_few_seconds(monkeypatch):
    from peasy.cli import output
    from peasy.cli.command import Flags

    monkeypatch.setattr(output, "_PIPE_INTERVAL", 0.0)
    line, quiet = output.ProgressLine("tokenizing", Flags()), output.ProgressLine("", Flags(quiet=True))
    shown = queue.Queue()
    monkeypatch.setattr(line, "update", shown.put)
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", None)  # none is started
        with quiet.waiting("reading"):
            pass
    with contextlib.suppress(ValueError), line.waiting("reading the data"):
        assert shown.get(timeout=60).startswith("reading the data · ")
        raise ValueError("no data")
    assert line._waiting.is_set(), "an error ends it, too"
    assert "" in shown.queue, "its message has a line of its own"
