"""Two processes on one machine: the same curve as one, any number goes on, and a lost one is named."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peasy import text
from peasy.checkpoint.store import read_checkpoint
from peasy.corpora import open_corpus, prepare
from peasy.errors import InvalidInput
from peasy.training import journal, loop
from peasy.training.crew import is_crew

WORKER = Path(__file__).with_name("worker.py")
LINES = "the cat sat on the mat\nthe dog lay on the rug\na bird sang in the tree\nmy phone broke today\n" * 30
WAYS = ("ddp", "fsdp")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    (folder / "lines.txt").write_text(LINES, encoding="utf-8")
    corpus = open_corpus(folder / "lines.txt")
    prepare(corpus, text.train(corpus.texts("train"), kind="characters"), folder / "shards")
    return folder


def start(folder: Path, way: str, steps: int, size: int = 2, **settings) -> list[subprocess.Popen]:
    """As torchrun starts them, without the seconds that torchrun itself takes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(size):
        env = os.environ | {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        words = [sys.executable, str(WORKER), str(folder), way, str(steps), json.dumps(settings)]
        started.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return started


def finish(started: list[subprocess.Popen], seconds: float = 120) -> list[tuple[int, str]]:
    ends = [process.communicate(timeout=seconds) for process in started]
    return [(process.returncode, out + err) for process, (out, err) in zip(started, ends, strict=True)]


def together(folder: Path, way: str, steps: int, size: int = 2, **settings) -> dict[int, float]:
    ended = finish(start(folder, way, steps, size, **settings))
    assert [code for code, _ in ended] == [0] * size, ended
    return losses(folder)


def alone(folder: Path, steps: int, **settings) -> dict[int, float]:
    sys.path.insert(0, str(WORKER.parent))
    try:
        from worker import task_of
    finally:
        sys.path.pop(0)
    list(loop.train(task_of(folder, steps, settings)))
    return losses(folder)


def losses(folder: Path) -> dict[int, float]:
    found: dict[int, float] = {}
    for line in journal.read(folder / "metrics.jsonl"):
        if line["event"] == "step":
            assert line["step"] not in found, f"step {line['step']} twice"
            found[line["step"]] = line["loss"]
    return found


def tensors(folder: Path, step: int) -> dict:
    found = read_checkpoint(folder / "checkpoints" / f"step-{step:06}").tensors
    return {name: found[name].clone() for name in found}


def close(left: dict[int, float], right: dict[int, float], most: float = 1e-5) -> bool:
    return left.keys() == right.keys() and all(abs(left[step] - right[step]) < most for step in left)


@pytest.fixture(scope="module")
def one(place):
    """The curve of one process."""
    return alone(place / "one", 8)


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_have_the_curve_of_one(way, place, one):
    two = together(place / f"two-{way}", way, 8)
    assert close(two, one)
    ours, theirs = tensors(place / f"two-{way}", 8), tensors(place / "one", 8)
    assert ours.keys() == theirs.keys()
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-3
    valid = [
        line["loss"] for line in journal.read(place / f"two-{way}" / "metrics.jsonl") if line["event"] == "validated"
    ]
    alone_valid = [
        line["loss"] for line in journal.read(place / "one" / "metrics.jsonl") if line["event"] == "validated"
    ]
    assert valid == pytest.approx(alone_valid, abs=1e-4)


def test_a_curve_of_other_batches_is_told_apart(place, one):
    """The inverse: were each process to take the whole batch, or another, the curves would part."""
    assert not close(alone(place / "other", 8, seed=4), one)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_on_with_another_number_of_processes(way, place, one):
    folder = place / f"grown-{way}"
    started = start(folder, way, 8, stop=4)
    assert [code for code, _ in finish(started)] == [0, 0]
    half = losses(folder)
    assert 4 <= max(half) < 8
    assert close(half, {step: loss for step, loss in one.items() if step in half})
    assert not list((folder / "checkpoints").glob(".*")), "shards are gone once they are whole"
    assert close(alone(folder, 8), one)


def test_a_run_of_one_goes_on_in_shards(place, one):
    folder = place / "split"
    events = []
    sys.path.insert(0, str(WORKER.parent))
    from worker import task_of

    stream = loop.train(task_of(folder, 8, {}))
    for event in stream:
        events.append(event)
        if getattr(event, "step", 0) == 4:
            stream.close()
            break
    assert close(together(folder, "fsdp", 8), one)


def test_muon_and_adamw_in_shards(place):
    plain = {"optimizer": {"kind": "adamw", "lr": 0.003}, "accumulate": 2}
    assert close(together(place / "adam-two", "fsdp", 4, **plain), alone(place / "adam-one", 4, **plain))
    assert close(together(place / "adam-ddp", "ddp", 4, **plain), losses(place / "adam-one"))


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_process_ends_the_others_and_is_named(way, place):
    started = start(place / f"killed-{way}", way, 400, die=3)
    began = time.monotonic()
    while started[1].poll() is None and time.monotonic() - began < 60:
        time.sleep(0.05)
    died = time.monotonic()
    (lead, said), _ = finish(started, 30)
    assert time.monotonic() - died < 15
    assert lead == 6
    assert re.search(rf"Process 1 \(pid {started[1].pid} on ", said), said


def test_an_uneven_batch_is_refused(place):
    ended = finish(start(place / "uneven", "ddp", 4, batch=3))
    assert [code for code, _ in ended] == [InvalidInput.exit_code] * 2
    assert "cannot be shared evenly by 2" in ended[0][1]


def test_only_torchrun_makes_a_crew():
    assert not is_crew({"WORLD_SIZE": "2"})
    assert not is_crew({"RANK": "0", "WORLD_SIZE": "1"})
