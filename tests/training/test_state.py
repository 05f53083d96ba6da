"""Checkpoints of a run: complete or absent, damage is detected, a full disk is survived."""

import errno
import os
import random
import shutil

import pytest
import torch

from peasy import atomic
from peasy.checkpoint.paths import list_checkpoints, resolve_model
from peasy.checkpoint.store import is_intact, read_checkpoint
from peasy.errors import ResourceUnavailable
from peasy.training.learner import make_learner
from peasy.training.loop import train
from peasy.training.optimizer import Optimizer
from peasy.training.state import Checkpointer, Progress, latest_state, load_state, weights_hash


@pytest.fixture
def saved(make_spec, finish):
    spec = make_spec(steps=6, num_saves=3)
    finish(spec)
    return spec


def test_checkpoint_loads_as_a_model(saved):
    checkpoint = read_checkpoint(resolve_model(saved.run).folder)
    assert checkpoint.config["kind"] == "decoder"
    assert "tokenizer.json" in checkpoint.manifest.files


def test_round_trip(saved, make_spec):
    fresh = make_spec("other")
    optimizer = Optimizer(fresh.model, fresh.recipe.optimizer)
    folder, warning = latest_state(saved.run)
    progress = load_state(folder, fresh.model, optimizer)
    assert warning is None
    assert (progress.step, progress.samples, progress.seq_len) == (6, 24, 16)
    assert weights_hash(fresh.model.state_dict()) == weights_hash(saved.model.state_dict())
    assert optimizer.state_dict()


def test_loaded_weights_are_copies(saved, make_spec):
    """Not memory-mapped, since the file may be deleted."""
    fresh = make_spec("other")
    folder, _ = latest_state(saved.run)
    load_state(folder, fresh.model, None)
    before = weights_hash(fresh.model.state_dict())
    (folder / "model.safetensors").write_bytes(b"\0" * (folder / "model.safetensors").stat().st_size)
    assert weights_hash(fresh.model.state_dict()) == before


@pytest.mark.parametrize("trial", range(30))
def test_mutated_checkpoint_is_skipped(saved, trial):
    rng = random.Random(trial)
    newest = list_checkpoints(saved.run)[0]
    mutate(newest, rng)
    folder, warning = latest_state(saved.run)
    assert folder.name == "step-000004"
    assert "step-000006 is damaged" in warning


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_a_thousand_mutated_checkpoints_are_skipped(saved, tmp_path):
    for trial in range(1000):
        run = tmp_path / "trial"
        shutil.copytree(saved.run, run)
        mutate(list_checkpoints(run)[0], random.Random(f"thousand {trial}"))
        folder, warning = latest_state(run)
        assert folder.name == "step-000004", trial
        assert "step-000006 is damaged" in warning, trial
        shutil.rmtree(run)


def mutate(folder, rng: random.Random) -> None:
    path = rng.choice(sorted(folder.iterdir()))
    data = bytearray(path.read_bytes())
    how = rng.choice(["flip", "cut", "grow", "gone"])
    if how == "flip":
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
    elif how == "cut":
        data = data[: rng.randrange(len(data))]
    elif how == "grow":
        data += b"x"
    path.unlink()
    if how != "gone":
        path.write_bytes(data)


def test_hash_changes_with_one_bit(saved):
    weights = {name: value.clone() for name, value in saved.model.state_dict().items()}
    before = weights_hash(weights)
    weights["decoder.norm.weight"].view(torch.int32)[0] ^= 1
    assert weights_hash(weights) != before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 5, 8])
def test_failing_disk_loses_no_checkpoint(saved, monkeypatch, number, at):
    """The k-th fsync fails: no partial checkpoint is ever selected, and the error says what is needed."""
    calls, real = iter(range(10_000)), os.fsync

    def fsync(descriptor):
        if next(calls) == at:
            raise OSError(number, os.strerror(number))
        return real(descriptor)

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    before = {folder.name for folder in list_checkpoints(saved.run)}
    progress = Progress(step=7, samples=28, seq_len=16)
    learner = make_learner(saved.model, saved.objective, saved.recipe)
    with pytest.raises(ResourceUnavailable, match=r"^[^\n]*step-000007[^\n]* bytes are needed\.$"):
        Checkpointer(saved.run, 3, saved.tokenizer).save(learner, progress)
    monkeypatch.undo()
    assert before <= {folder.name for folder in list_checkpoints(saved.run)}
    folder, warning = latest_state(saved.run)
    assert warning is None
    assert is_intact(folder)


def test_run_resumes_after_full_disk(make_spec, finish, outcome, monkeypatch):
    whole = make_spec("whole")
    finish(whole)
    spec, real = make_spec("cut"), os.fsync

    def full(descriptor):
        if (spec.run / "checkpoints" / "step-000003").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor)

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(ResourceUnavailable):
        list(train(spec))
    monkeypatch.undo()
    again = make_spec("cut")
    finish(again)
    assert outcome(again.run) == outcome(whole.run)
