"""Training survives kills at any write or time, failing disks, signals, and two processes on one run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("harness.py")
LINES = ["the cat sat on the mat", "a bird sang in the tree", "it tasted good", "he walks to the old town"] * 40
SMALL = [
    "--preset", "tiny", "--seed", "5", "--set", "tokenizer.algorithm=characters", "--set", "model.d_model=16",
    "--set", 'model.stack={"num_layers": 1}', "--set", "seq_len=8", "--set", "seq_len_warmup=null",
    "--set", "batch_size=2",
]  # fmt: skip


def sweep(folder: Path, mode: str, count: int, seed: int) -> dict:
    done = subprocess.run(
        [sys.executable, str(HARNESS), str(folder), mode, str(count), str(seed)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_interrupted_runs_equal_the_uninterrupted_run(tmp_path):
    result = sweep(tmp_path, "mixed", 3, seed=11)
    assert result["writes"] > 50
    assert result["wrong"] == []


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["kill", "fail", "time"])
def test_full_sweep(tmp_path, mode):
    """Every durable write is the k-th once, and a hundred random times."""
    result = sweep(tmp_path, mode, 0, seed=1)
    assert result["trials"] >= result["writes"] > 50
    assert result["wrong"] == []


def test_sweep_detects_a_different_run(tmp_path, monkeypatch):
    """The inverse: a run that does not restore its optimizer is detected."""
    spoiled = HARNESS.read_text(encoding="utf-8").replace(
        "def run_once(",
        "from peasy.training.optimizer import Optimizer\n"
        "Optimizer.load_state_dict = lambda self, state: None\n\n"
        "def run_once(",
    )
    (tmp_path / "harness.py").write_text(spoiled, encoding="utf-8")
    monkeypatch.setattr(sys.modules[__name__], "HARNESS", tmp_path / "harness.py")
    folder = tmp_path / "trials"
    folder.mkdir()
    wrong = sweep(folder, "kill", 2, seed=11)["wrong"]
    assert any("weights differ" in failure for failure in wrong)


class Trainer:
    """`peasy train` in a subprocess."""

    def __init__(self, folder: Path, *more: str) -> None:
        (folder / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
        self.run = folder / "run"
        command = [sys.executable, "-m", "peasy", "train", "gpt", "--data", str(folder / "lines.txt")]
        self.process = subprocess.Popen(
            [*command, "--run", str(self.run), *SMALL, *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PEASY_HOME": str(folder / "home")},
        )  # fmt: skip

    def wait_for_steps(self, count: int = 3) -> None:
        end = time.monotonic() + 120
        while self.steps() < count:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end, "it never took a step"
            time.sleep(0.02)

    def steps(self) -> int:
        metrics = self.run / "metrics.jsonl"
        return metrics.read_text().count('"event": "step"') if metrics.is_file() else 0

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["int", "term"])
def test_signal_saves_and_prints_the_resume_command(tmp_path, number, code):
    quiet = ["--set", "num_saves=0", "--set", "num_validations=0", "--set", "num_samplings=0"]
    trainer = Trainer(tmp_path, "--steps", "1000000", *quiet)
    trainer.wait_for_steps()
    trainer.process.send_signal(number)
    exit_code, _, err = trainer.end()
    assert exit_code == code, err
    assert f"peasy train gpt --run {trainer.run} --resume" in err
    (saved,) = (trainer.run / "checkpoints").glob("step-*")
    assert int(saved.name.removeprefix("step-")) == trainer.steps()


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signal_saves_fifty_times(tmp_path, name):
    assert sweep(tmp_path, name, 50, seed=1)["wrong"] == []


def test_second_process_on_one_run_is_rejected(tmp_path):
    first = Trainer(tmp_path, "--steps", "1000000", "--set", "num_saves=0")
    try:
        first.wait_for_steps(1)
        second = Trainer(tmp_path, "--steps", "1000000", "--set", "num_saves=0", "--resume")
        code, _, err = second.end()
    finally:
        first.process.kill()
        first.end()
    assert code == 6
    assert f"is being trained by another process (process {first.process.pid})" in err


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("call", ["fsync", "rename", "mkdir", "write"])
def test_killed_at_system_calls(tmp_path, call):
    """Killed by strace at every system call that writes, flushes, renames or creates a folder."""
    strace = shutil.which("strace") or pytest.skip("strace is not installed")
    probe = subprocess.run([strace, "-f", "-o", "/dev/null", "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("this machine does not let a process be traced")
    result = sweep(tmp_path, call, 1000, seed=1)
    assert 10 < result["trials"] < 1000
    assert result["wrong"] == []
