"""Two processes on one machine: same loss curve as one, resuming with any number, lost ranks are reported."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from peasy import tokenization
from peasy.checkpoint.store import read_checkpoint
from peasy.datasets import open_corpus
from peasy.datasets.shards import prepare_shards
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training import loop, metrics_log
from peasy.training.distributed import ProcessGroup, is_distributed, process_group
from peasy.training.objective import Contrastive
from peasy.training.parallel import LossModule, local_rows

WORKER = Path(__file__).with_name("worker.py")
LINES = "the cat sat on the mat\nthe dog lay on the rug\na bird sang in the tree\nmy phone broke today\n" * 30
STRATEGIES = ("ddp", "fsdp")
STEPS = 8
ADAM = {"optimizer": {"kind": "adamw", "lr": 0.003}, "grad_accum_steps": 2}
JOBS = [
    ("two-ddp", "ddp", STEPS, {}),
    ("two-fsdp", "fsdp", STEPS, {}),
    ("adam-ddp", "ddp", 4, ADAM),
    ("adam-fsdp", "fsdp", 4, ADAM),
    ("stopped-ddp", "ddp", STEPS, {"stop": 4}),
    ("stopped-fsdp", "fsdp", STEPS, {"stop": 4}),
    ("half", "fsdp", STEPS, {}),
    ("again-ddp", "ddp", STEPS, {"stop": 3}),
    ("again-ddp", "ddp", STEPS, {}),
    ("again-fsdp", "fsdp", STEPS, {"stop": 3}),
    ("again-fsdp", "fsdp", STEPS, {}),
]
"""All in one process group, because starting one takes longer than training."""


def start(folder: Path, jobs: list) -> list[subprocess.Popen]:
    """Start two workers with torchrun's environment, without the seconds that torchrun itself takes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(2):
        env = os.environ | {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        words = [sys.executable, str(WORKER), str(folder), json.dumps(jobs)]
        started.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return started


def finish(started: list[subprocess.Popen], seconds: float = 180) -> list[tuple[int, str]]:
    ends = [process.communicate(timeout=seconds) for process in started]
    return [(process.returncode, out + err) for process, (out, err) in zip(started, ends, strict=True)]


def make_spec(*given):
    sys.path.insert(0, str(WORKER.parent))
    try:
        from worker import make_spec as make
    finally:
        sys.path.pop(0)
    return make(*given)


def train_single(folder: Path, steps: int = STEPS, **settings) -> dict[int, float]:
    list(loop.train(make_spec(folder, steps, settings)))
    return losses(folder)


def losses(folder: Path, event: str = "step") -> dict[int, float]:
    found: dict[int, float] = {}
    for line in metrics_log.read_log(folder / "metrics.jsonl"):
        if line["event"] == event:
            assert line["step"] not in found, f"step {line['step']} twice"
            found[line["step"]] = line["loss"]
    return found


def tensors(folder: Path, step: int) -> dict:
    found = read_checkpoint(folder / "checkpoints" / f"step-{step:06}").tensors
    return {name: found[name].clone() for name in found}


def close(left: dict[int, float], right: dict[int, float], most: float = 1e-5) -> bool:
    return left.keys() == right.keys() and all(abs(left[step] - right[step]) < most for step in left)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus, a run begun by one process, and all JOBS done by two."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "lines.txt").write_text(LINES, encoding="utf-8")
    corpus = open_corpus(folder / "lines.txt")
    prepare_shards(corpus, tokenization.train_tokenizer(corpus.texts("train"), kind="characters"), folder / "shards")
    events = loop.train(make_spec(folder / "half", STEPS, {}))
    next(event for event in events if getattr(event, "step", 0) == 4)
    events.close()
    ended = finish(start(folder, JOBS))
    assert [code for code, _ in ended] == [0, 0], ended
    return folder


@pytest.fixture(scope="module")
def one(folder):
    """Loss curve of a single process."""
    return train_single(folder / "one")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_processes_match_one(strategy, folder, one):
    two = folder / f"two-{strategy}"
    assert close(losses(two), one)
    assert close(losses(two, "validated"), losses(folder / "one", "validated"), 1e-4)
    ours, theirs = tensors(two, STEPS), tensors(folder / "one", STEPS)
    assert ours.keys() == theirs.keys()
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-3


def test_other_batches_give_another_curve(folder, one):
    """The inverse: if a rank took other rows, the curves would differ."""
    assert not close(train_single(folder / "other", seed=4), one)
    assert not close(train_single(folder / "half-batch", batch_size=2), one)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_adamw_with_gradient_accumulation(strategy, folder):
    wanted = losses(folder / "adam-one") or train_single(folder / "adam-one", 4, **ADAM)
    assert close(losses(folder / f"adam-{strategy}"), wanted)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_ranks_stop_and_one_process_resumes(strategy, folder, one):
    folder = folder / f"stopped-{strategy}"
    half = losses(folder)
    assert 4 <= max(half) < STEPS
    assert not list((folder / "checkpoints").glob(".*")), "temporary shards are deleted"
    assert close(train_single(folder), one)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_resuming_with_two_processes_is_bit_exact(strategy, folder):
    again, whole = folder / f"again-{strategy}", folder / f"two-{strategy}"
    assert losses(again) == losses(whole)
    ours, theirs = tensors(again, STEPS), tensors(whole, STEPS)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_single_process_run_resumes_with_fsdp(folder, one):
    assert close(losses(folder / "half"), one)


def listening(pid: int) -> set[str]:
    """Return the addresses a process listens on (Linux only); IPv6 addresses as hex."""
    if sys.platform != "linux":
        return set()
    sockets = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            local, state, inode = (line.split()[at] for at in (1, 3, 9))
            if state == "0A" and f"socket:[{inode}]" in sockets:
                address = local.partition(":")[0]
                found.add(socket.inet_ntoa(bytes.fromhex(address)[::-1]) if len(address) == 8 else address)
    return found


def test_listening_detects_public_server():
    """The inverse: a server on a public address is detected."""
    with socket.create_server(("0.0.0.0", 0)):
        assert "0.0.0.0" in listening(os.getpid()) or sys.platform != "linux"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_killed_rank_stops_the_others_and_is_reported(strategy, folder):
    settings = {"die": 60, "num_validations": 0, "num_samplings": 0}
    started = start(folder, [(f"killed-{strategy}", strategy, 4000, settings)])
    while not losses(folder / f"killed-{strategy}") and started[0].poll() is None:
        time.sleep(0.05)
    assert {address for process in started for address in listening(process.pid)} <= {"127.0.0.1"}
    started[1].wait(120)
    (code, output), _ = finish(started, 120)
    assert code == 6
    assert re.search(rf"Process 1 \(pid {started[1].pid} on .*\) of 2 is gone", output), output


def test_frozen_rank_is_reported(folder, monkeypatch):
    """It is alive and its connections stay open, but it does not answer."""
    monkeypatch.setenv("PEASY_TIMEOUT", "3")
    started = start(folder, [("frozen", "ddp", 40_000, {"num_validations": 0, "num_samplings": 0})])
    while not losses(folder / "frozen") and started[0].poll() is None:
        time.sleep(0.05)
    try:
        started[1].send_signal(signal.SIGSTOP)
        code, output = finish(started[:1], 120)[0]
    finally:
        started[1].kill()
        started[1].communicate()
    assert code == 6
    assert re.search(rf"Process 1 \(pid {started[1].pid} on .*\) of 2 is gone", output), output


@pytest.mark.timeout(1200)  # starts three interpreters with torch: minutes on a loaded machine
def test_processes_started_by_peasy(folder, one):
    """One command starts, connects and ends the other ranks; they listen on loopback only."""
    settings = {
        "tokenizer.algorithm": "characters", "batch_size": 4, "seq_len": 16, "seq_len_warmup": "null",
        "num_validations": 0, "num_samplings": 0, "num_saves": 1, "precision": "float32",
    }  # fmt: skip
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words = [sys.executable, "-m", "peasy", "train", "gpt", "--data", str(folder / "lines.txt"), "--json", *flags]
    runs = {count: folder / f"started-{count}" for count in (1, 2)}
    for count, run in runs.items():
        more = ["--steps", "60", "--num-processes", str(count), "--run", str(run), "--preset", "tiny"]
        env = os.environ | {"OMP_NUM_THREADS": "1", "PEASY_HOME": str(folder / "home")}
        began = subprocess.Popen([*words, *more], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not losses(run) and began.poll() is None:
            time.sleep(0.02)
        group = [began.pid, *children(began.pid)]
        assert sys.platform != "linux" or len(group) == count
        assert {address for pid in group for address in listening(pid)} <= {"127.0.0.1"}
        ((code, output),) = finish([began])
        assert code == 0, output
        assert not any(Path(f"/proc/{pid}").exists() for pid in group), "no process is left"
    curves = [{step: loss for step, loss in losses(run).items() if step <= 8} for run in runs.values()]
    assert close(*curves)


def children(pid: int) -> list[int]:
    if sys.platform != "linux":
        return []
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(pid_text) for path in tasks for pid_text in path.read_text(encoding="ascii").split()]


class Beside(ProcessGroup):
    """Rank of two, with known messages from the other rank."""

    def __init__(self, rank, sent):
        super().__init__(rank, 2)
        self.sent = iter(sent)

    def all_gather(self, rows):
        parts = list(next(self.sent).chunk(2))
        parts[self.rank] = rows
        return torch.cat(parts)


def test_contrastive_negatives_come_from_all_ranks():
    model = build(preset("encoder-tiny", vocab_size=30, d_model=16), seed=1).train()
    ids = torch.randint(0, 30, (2, 4, 6), generator=torch.Generator().manual_seed(1))
    batch = {"source": ids[0], "ids": ids[1], "label": torch.tensor([0, 1, 0, 2])}
    total = Contrastive().loss_sum(model, batch)
    total.backward()
    wanted = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    sent = [model.embed(batch[name]).detach() for name in ("source", "ids")]
    model.zero_grad()
    shares = []
    for rank in range(2):
        group = Beside(rank, sent)
        shares.append(LossModule(model, Contrastive(), group)(local_rows(batch, group)))
        shares[-1].backward()
    assert float(sum(shares).detach()) == pytest.approx(float(total.detach()), abs=1e-5)
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    assert found.keys() == wanted.keys()
    assert all(torch.allclose(found[name], wanted[name], atol=1e-5) for name in wanted)


def test_rows_must_split_evenly():
    batch = {"ids": torch.arange(8).reshape(4, 2)}
    mine = [local_rows(batch, ProcessGroup(rank, 2))["ids"].tolist() for rank in range(2)]
    assert mine == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    with pytest.raises(InvalidInput, match="cannot be split evenly over 3 processes"):
        local_rows(batch, ProcessGroup(0, 3))


def test_group_needs_torchrun_or_a_number_of_processes():
    assert not is_distributed({"WORLD_SIZE": "2"})
    assert not is_distributed({"RANK": "0", "WORLD_SIZE": "1"})
    with pytest.raises(InvalidInput, match="num_processes is None"), process_group():
        pass
