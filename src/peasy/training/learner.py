"""Learners: one training step, by gradient descent or by n-gram counting."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from peasy.models.protocol import Model
from peasy.training.chance import drawing
from peasy.training.finite import Diverged, blame, broken
from peasy.training.objective import Batch, Counting, Objective
from peasy.training.optimizer import Optimizer
from peasy.training.precision import cast


class Learned(NamedTuple):
    """Mean loss of the batch before the update, and the gradient norm."""

    loss: float
    norm: float | None


class Learner(Protocol):
    """Updates a model on one batch, given as micro-batches."""

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer, for models trained by gradients."""

    def learn(self, parts: Sequence[Batch], step: int, factor: float) -> Learned:
        """Do one training step; `lr_scale` multiplies the learning rate."""


class GradientLearner:
    """Forward and backward pass for each micro-batch, then one optimizer step."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        optimizer: Optimizer,
        *,
        seed: int,
        clip: float | None = None,
        precision: str = "float32",
        compile: bool = False,
    ) -> None:
        self.model, self.objective, self.optimizer = model, objective, optimizer
        self.seed, self.clip, self.precision = seed, clip, precision
        self.device = str(model.device)
        self._hidden = torch.compile(model.hidden) if compile else None
        self._draws = getattr(model.config, "dropout", 0.0) > 0

    def learn(self, parts: Sequence[Batch], step: int, factor: float) -> Learned:
        """Do one training step; raise on NaN or infinity before they reach the weights."""
        count = sum(map(self.objective.count, parts))
        self.optimizer.forget_gradients()
        loss = 0.0
        with self._compiled(), self._drawing(step):
            for part in parts:
                mean = self._mean(part, count)
                mean.backward()
                loss += float(mean.detach())
        norm = float(self.optimizer.clip(self.clip))
        if broken(loss) or broken(norm):
            raise self._blame(parts, count, step)
        self.optimizer.step(factor)
        return Learned(loss, norm)

    def _mean(self, part: Batch, count: int) -> Tensor:
        with cast(self.precision, self.device):
            return self.objective.total(self.model, part) / count

    def _blame(self, parts: Sequence[Batch], count: int, step: int) -> Diverged:
        def repeat_step() -> Tensor:
            with self._drawing(step):
                return torch.stack([self._mean(part, count) for part in parts]).sum()

        return blame(self.model, repeat_step, step)

    def _drawing(self, step: int) -> contextlib.AbstractContextManager[None]:
        return drawing(self.seed, step) if self._draws else contextlib.nullcontext()

    @contextlib.contextmanager
    def _compiled(self) -> Iterator[None]:
        """Use the compiled forward pass only here: sampling and validation have varying lengths."""
        if self._hidden is None:
            yield
            return
        self.model.hidden = self._hidden  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.model.hidden


class CountingLearner:
    """Counts every batch; the loss is measured beforehand on a few of its sequences."""

    optimizer: Optimizer | None = None

    def __init__(self, model: Model, objective: Counting, *, rows: int = 2) -> None:
        self.model, self.objective, self.rows = model, objective, rows

    def learn(self, parts: Sequence[Batch], step: int, factor: float) -> Learned:
        """Measure the loss, then count one batch."""
        subset = {name: array[: self.rows] for name, array in parts[0].items()}
        with torch.inference_mode():
            loss = float(self.objective.total(self.model, subset)) / max(self.objective.count(subset), 1)
        with torch.no_grad():
            for part in parts:
                self.objective.observe(self.model, part)
        return Learned(loss, None)
