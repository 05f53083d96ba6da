"""Fault injection for training: kills the process or fails the disk, in forks, so that torch is imported once.

`python harness.py FOLDER kill|fail|time|mixed COUNT SEED` prints the number of trials and the failures, as JSON.
Each trial trains in a forked child, which dies at its k-th durable write or at a random time; it is then restarted
with --resume until it finishes, and the result must equal the uninterrupted run.
"""

import errno
import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch

from peasy.commands.train import train_events
from peasy.training import metrics_log

SETTINGS = {
    "model": {"d_model": 16, "stack": {"num_layers": 1}, "dropout": 0.1},
    "tokenizer": {"algorithm": "characters"},
    "seq_len": 8, "seq_len_warmup": {"seq_len": 4, "until_fraction": 0.5}, "batch_size": 2,
    "num_validations": 2, "num_samplings": 2, "num_saves": 4, "validation_tokens": 64, "keep_checkpoints": 2,
    "precision": "float32",
}  # fmt: skip
STEPS = 8
LINES = ["the cat sat on the mat", "a bird sang in the tree", "it tasted good", "he walks to the old town"] * 8


def run_once(folder: Path, name: str) -> None:
    data = folder / "lines.txt"
    for _ in train_events(
        "gpt", data, preset="tiny", steps=STEPS, seed=5, run=folder / name, settings=SETTINGS, resume=True, device="cpu"
    ):
        pass


def in_child(act) -> int:
    """Run a function in a fork; return its exit code, or minus the signal that killed it."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


WRITES = [(os, "fsync"), (os, "rename"), (os, "replace"), (os, "mkdir"), (metrics_log.MetricsLog, "write")]


def interfere(at: int, act) -> list[int]:
    """Replace the `at`-th durable write of this process by `act`; return a counter of the writes."""
    done = [0]
    for owner, name in WRITES:
        real = getattr(owner, name)

        def instead(*given, real=real, **more):
            done[0] += 1
            if done[0] == at:
                act()
            return real(*given, **more)

        setattr(owner, name, instead)
    return done


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(number: int):
    def raises() -> None:
        raise OSError(number, os.strerror(number))

    return raises


def outcome(run: Path) -> dict:
    metrics = list(metrics_log.read_log(run / "metrics.jsonl"))
    steps = [line for line in metrics if line["event"] == "step"]
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1)), "a step is missing, or logged twice"
    return {
        "losses": [line["loss"].hex() for line in steps],
        "valid": [[line["step"], line["loss"].hex()] for line in metrics if line["event"] == "validated"],
        "samples": [[line["step"], line["ids"]] for line in metrics_log.read_log(run / "samples.jsonl")],
        "weights": next(line["sha256"] for line in reversed(metrics) if line["event"] == "finished"),
    }


STRIDE = 37
"""A prime: a full sweep hits each write first once, and a short one is spread over all of them."""


def trial(folder: Path, mode: str, number: int, rng: random.Random, seconds: float, writes: int) -> None:
    name = f"{mode}-{number}"
    committed: set[str] = set()
    for again in range(rng.randint(1, 3) if mode != "fail" else 1):
        before = _committed(folder / name)
        at = rng.randint(1, writes) if again else 1 + STRIDE * number % writes
        interrupted(folder, name, mode, at, rng, seconds)
        committed = _committed(folder / name)
        lost = {step for step in before if step not in committed and step > max(committed, default="")}
        assert not lost, f"{name}: {lost} was lost"
    code = in_child(lambda: run_once(folder, name))
    assert code == 0, f"{name}: the restart ended with {code}"


def interrupted(folder: Path, name: str, mode: str, at: int, rng: random.Random, seconds: float) -> None:
    if mode == "time":
        pid = os.fork()
        if not pid:
            try:
                run_once(folder, name)
            finally:
                os._exit(0)
        time.sleep(rng.uniform(0, 1.2 * seconds))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return
    act = die if mode == "kill" else fail(rng.choice([errno.ENOSPC, errno.EIO]))

    def child() -> None:
        interfere(at, act)
        try:
            run_once(folder, name)
        except Exception as error:
            if type(error).__name__ not in ("ResourceUnavailable", "InvalidInput", "OSError"):
                raise

    in_child(child)


def _committed(run: Path) -> set[str]:
    return {folder.name for folder in (run / "checkpoints").glob("step-*")}


def main(folder: Path, requested_mode: str, count: int, seed: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["PEASY_HOME"] = str(folder / "home")
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")

    def counting() -> None:
        done = interfere(0, die)
        run_once(folder, "whole")
        (folder / "writes").write_text(str(done[0]))

    start = time.monotonic()
    assert in_child(counting) == 0
    seconds, writes = time.monotonic() - start, int((folder / "writes").read_text())
    expected, wrong = outcome(folder / "whole"), []
    for number in range(count):
        mode = ("kill", "fail", "time")[number % 3] if requested_mode == "mixed" else requested_mode
        try:
            trial(folder, mode, number, random.Random(f"{seed} {number}"), seconds, writes)
            actual = outcome(folder / f"{mode}-{number}")
            wrong += [f"{mode}-{number}: {key} differ" for key in expected if actual[key] != expected[key]]
        except Exception as error:
            wrong.append(f"{mode}-{number}: {error!r}")
    sys.stdout.write(json.dumps({"trials": count, "writes": writes, "wrong": wrong}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
