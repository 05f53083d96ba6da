"""NaN and infinity stop training at their step, name the first module, and are never saved."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from peasy.training import state
from peasy.training.learner import Diverged, GradientLearner
from peasy.training.loop import train
from peasy.training.objective import NextToken
from peasy.training.optimizer import AdamWConfig, Optimizer


def run_until(spec, step: int):
    events = train(spec)
    for event in events:
        if getattr(event, "step", 0) == step and event.event == "step":
            return events
    raise AssertionError("the run ended before")


def test_module_that_produces_nan_is_named(make_spec):
    spec = make_spec(steps=8)
    events = run_until(spec, 3)
    block = spec.model.decoder.blocks[0].feedforward
    block.down.register_forward_hook(lambda module, given, result: result * torch.nan)
    with pytest.raises(Diverged, match=r"Step 4: the first module with NaN .* decoder\.blocks\.0\.feedforward\.down"):
        list(events)


def test_infinite_gradient_is_named(make_spec):
    spec = make_spec(steps=8)
    events = run_until(spec, 2)
    weight = spec.model.decoder.blocks[0].attention.value.weight
    weight.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(Diverged, match=r"Step 3: .* in its gradient is decoder\.blocks\.0\.attention\.value"):
        list(events)


def test_infinite_weight_is_named(make_spec):
    spec = make_spec(steps=8, num_saves=0)
    events = run_until(spec, 2)
    with torch.no_grad():
        spec.model.decoder.norm.weight[0] = torch.inf
    with pytest.raises(Diverged, match=r"Step 3: the weights decoder\.norm\.weight"):
        list(events)


def test_invalid_token_id_is_rejected(make_spec):
    spec = make_spec(steps=4)

    class Wrong:
        def batch(self, *given):
            return {"ids": torch.full((2, 4), 10_000), "targets": torch.zeros(2, 4, dtype=torch.long)}

        def validation(self, *given):
            return iter(())

        def num_samples(self, seq_len):
            return 100

    with pytest.raises(Exception, match="There is no token 10000"):
        list(train(dataclasses.replace(spec, data_loader=Wrong())))


def test_nan_weights_are_never_saved(make_spec):
    spec = make_spec(steps=4, num_saves=0)
    events = run_until(spec, 2)
    with torch.no_grad():
        spec.model.decoder.norm.weight[0] = torch.nan
    with pytest.raises(Diverged, match="contain NaN"):
        events.close()
    assert all(state.is_intact(folder) for folder in (spec.run / "checkpoints").glob("step-*"))
    assert not (spec.run / "checkpoints" / "step-000002").exists()


def test_without_the_check_nan_reaches_the_weights(make_spec, monkeypatch):
    spec = make_spec()
    monkeypatch.setattr("peasy.training.learner.math", SimpleNamespace(isfinite=lambda number: True))
    learner = GradientLearner(spec.model, Poisoned(), Optimizer(spec.model, AdamWConfig()), seed=0, grad_clip=1.0)
    learner.step([spec.data_loader.batch(0, 2, 8)], 1, 1.0)
    assert not torch.isfinite(spec.model.decoder.norm.weight).all()


class Poisoned(NextToken):
    def loss_sum(self, model, batch):
        return super().loss_sum(model, batch) * torch.nan
