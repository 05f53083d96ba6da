"""Fault injection for training: kills the process or fails the disk, in forks of a process that has trained already.

`python harness.py FOLDER MODE COUNT SEED` prints the number of trials and the failures, as JSON. COUNT 0: every write,
and at least a hundred trials. An interrupted run is restarted with --resume until it finishes, and the result must
equal the uninterrupted run. Modes:

- kill, fail, time, mixed: a forked child dies at its k-th durable write, or the write fails, or it dies at some time.
- fsync, rename, mkdir, write: strace kills the command `peasy train` at its k-th such system call, for every k.
- SIGINT, SIGTERM: the signal is sent to the command at a random step; it must save that step.
"""

import ctypes
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch

from peasy.cli.app import run as run_command
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


def fork(act) -> int:
    """Run a function in a fork, whose exit code is what it returns; return the process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = act() or 0
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_code(pid: int) -> int:
    """Wait for a process; return its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_child(act) -> int:
    return exit_code(fork(act))


def command(folder: Path, name: str, **changed: int) -> int:
    """Run `peasy train` in this process, messages into a file; return its exit code."""
    messages = os.open(folder / f"{name}.messages", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(messages, 1)
    os.dup2(messages, 2)
    words = ["train", "gpt", "--data", str(folder / "lines.txt"), "--run", str(folder / name), "--resume"]
    words += ["--preset", "tiny", "--seed", "5", "--device", "cpu", "--steps", str(changed.pop("steps", STEPS))]
    for key, value in (SETTINGS | changed).items():
        words += ["--set", f"{key}={json.dumps(value)}"]
    return run_command(words)


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


SYSTEM_CALLS = ("fsync", "rename", "mkdir", "write")


def trial(folder: Path, name: str, mode: str, number: int, rng: random.Random, whole: dict) -> bool:
    """Interrupt a run, restart it, compare it with the whole one; return False if it has fewer calls than `number`."""
    if mode.startswith("SIG"):
        signalled(folder, name, signal.Signals[mode], rng)
        return True
    if mode in SYSTEM_CALLS:
        if not killed_at_call(folder, name, mode, number + 1):
            return False
    else:
        interrupt_often(folder, name, mode, number, rng, whole)
    code = in_child(lambda: command(folder, name) if mode in SYSTEM_CALLS else run_once(folder, name))
    assert code == 0, f"the restart ended with {code}"
    actual = outcome(folder / name)
    differing = [f"{key} differ" for key in actual if actual[key] != whole["outcome"][key]]
    assert not differing, differing
    return True


def interrupt_often(folder: Path, name: str, mode: str, number: int, rng: random.Random, whole: dict) -> None:
    committed: set[str] = set()
    for again in range(rng.randint(1, 3) if mode != "fail" else 1):
        before = _committed(folder / name)
        at = rng.randint(1, whole["writes"]) if again else 1 + STRIDE * number % whole["writes"]
        interrupted(folder, name, mode, at, rng, whole["seconds"])
        committed = _committed(folder / name)
        lost = {step for step in before if step not in committed and step > max(committed, default="")}
        assert not lost, f"{lost} was lost"


def interrupted(folder: Path, name: str, mode: str, at: int, rng: random.Random, seconds: float) -> None:
    if mode == "time":
        pid = fork(lambda: run_once(folder, name))
        time.sleep(rng.uniform(0, 1.2 * seconds))
        os.kill(pid, signal.SIGKILL)
        exit_code(pid)
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


def signalled(folder: Path, name: str, number: signal.Signals, rng: random.Random) -> None:
    """Send a signal to the command at a random step: it saves that step and says how to continue."""
    never = {"num_saves": 0, "num_validations": 0, "num_samplings": 0}
    pid = fork(lambda: command(folder, name, steps=1_000_000, **never))
    metrics, steps, end = folder / name / "metrics.jsonl", rng.randint(1, 40), time.monotonic() + 120

    def logged() -> int:
        return metrics.read_text().count('"event": "step"') if metrics.is_file() else 0

    while logged() < steps:
        assert time.monotonic() < end, "it never took a step"
        time.sleep(rng.uniform(0, 0.02))
    os.kill(pid, number)
    code, messages = exit_code(pid), (folder / f"{name}.messages").read_text()
    assert code == (130 if number == signal.SIGINT else 0), messages
    assert f"peasy train gpt --run {folder / name} --resume" in messages, messages
    (saved,) = _committed(folder / name)
    assert int(saved.removeprefix("step-")) == logged()


def killed_at_call(folder: Path, name: str, call: str, at: int) -> bool:
    """Kill the command with strace at its `at`-th system call; return whether it had so many."""
    ready, release = os.pipe()

    def wait_and_train() -> int:
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))  # PR_SET_PTRACER: any process may trace this one
        os.read(ready, 1)
        return command(folder, name)

    pid = fork(wait_and_train)
    inject = ["-e", f"trace=/^{call}", "-e", f"inject=/^{call}:signal=KILL:when={at}"]
    strace = subprocess.Popen(
        ["strace", "-f", "-o", "/dev/null", *inject, "-p", str(pid)], stderr=subprocess.PIPE, text=True
    )
    attached = strace.stderr.readline()
    os.write(release, b"x")
    code = exit_code(pid)
    strace.communicate()
    os.close(ready), os.close(release)
    assert "attached" in attached, attached
    assert code in (0, -signal.SIGKILL), code
    return code != 0


def main(folder: Path, requested_mode: str, count: int, seed: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["PEASY_HOME"] = str(folder / "home")
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    run_once(folder, "warm")  # late imports and caches are made here, once for all forks

    def counting() -> None:
        done = interfere(0, die)
        run_once(folder, "whole")
        (folder / "writes").write_text(str(done[0]))

    start = time.monotonic()
    assert in_child(counting) == 0
    seconds, writes = time.monotonic() - start, int((folder / "writes").read_text())
    assert writes % STRIDE, "the stride would skip writes"
    whole = {"seconds": seconds, "writes": writes, "outcome": outcome(folder / "whole")}
    wrong, trials = [], range(count or max(writes, 100))
    for number in trials:
        mode = ("kill", "fail", "time")[number % 3] if requested_mode == "mixed" else requested_mode
        name = f"{mode}-{number}"
        try:
            if not trial(folder, name, mode, number, random.Random(f"{seed} {number}"), whole):
                trials = range(number)
                break
        except Exception as error:
            wrong.append(f"{name}: {error!r}")
        shutil.rmtree(folder / name, ignore_errors=True)
    sys.stdout.write(json.dumps({"trials": len(trials), "writes": writes, "wrong": wrong}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
