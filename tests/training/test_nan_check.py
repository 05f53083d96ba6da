"""NaN and infinity stop training at their step, name the first module, and are never saved."""

import dataclasses

import pytest
import torch

from peasy.training import state
from peasy.training.learner import GradientLearner
from peasy.training.loop import train
from peasy.training.nan_check import Diverged
from peasy.training.objective import NextToken
from peasy.training.optimizer import AdamWConfig, Optimizer


def run_until(task, step: int):
    events = train(task)
    for event in events:
        if getattr(event, "step", 0) == step and event.event == "step":
            return events
    raise AssertionError("the run ended before")


def test_module_that_produces_nan_is_named(task):
    it = task(steps=8)
    events = run_until(it, 3)
    block = it.model.decoder.blocks[0].feedforward
    block.down.register_forward_hook(lambda module, given, result: result * torch.nan)
    with pytest.raises(Diverged, match=r"Step 4: the first module with NaN .* decoder\.blocks\.0\.feedforward\.down"):
        list(events)


def test_infinite_gradient_is_named(task):
    it = task(steps=8)
    events = run_until(it, 2)
    weight = it.model.decoder.blocks[0].attention.value.weight
    weight.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(Diverged, match=r"Step 3: .* in its gradient is decoder\.blocks\.0\.attention\.value"):
        list(events)


def test_infinite_weight_is_named(task):
    it = task(steps=8, save=0)
    events = run_until(it, 2)
    with torch.no_grad():
        it.model.decoder.norm.weight[0] = torch.inf
    with pytest.raises(Diverged, match=r"Step 3: the weights decoder\.norm\.weight"):
        list(events)


def test_invalid_token_id_is_rejected(task):
    it = task(steps=4)

    class Wrong:
        def batch(self, *given):
            return {"ids": torch.full((2, 4), 10_000), "targets": torch.zeros(2, 4, dtype=torch.long)}

        def held_out(self, *given):
            return iter(())

        def samples(self, context):
            return 100

    with pytest.raises(Exception, match="Token id 10000"):
        list(train(dataclasses.replace(it, feed=Wrong())))


def test_nan_weights_are_never_saved(task):
    it = task(steps=4, save=0)
    events = run_until(it, 2)
    with torch.no_grad():
        it.model.decoder.norm.weight[0] = torch.nan
    with pytest.raises(Diverged, match="contain NaN"):
        events.close()
    assert all(state.is_intact(folder) for folder in (it.run / "checkpoints").glob("step-*"))
    assert not (it.run / "checkpoints" / "step-000002").exists()


def test_without_the_check_nan_reaches_the_weights(task, monkeypatch):
    it = task()
    monkeypatch.setattr("peasy.training.learner.broken", lambda number: False)
    learner = GradientLearner(it.model, Poisoned(), Optimizer(it.model, AdamWConfig()), seed=0, grad_clip=1.0)
    learner.step([it.feed.batch(0, 2, 8)], 1, 1.0)
    assert not torch.isfinite(it.model.decoder.norm.weight).all()


class Poisoned(NextToken):
    def total(self, model, batch):
        return super().loss_sum(model, batch) * torch.nan
