"""Learners: one training step, by gradient descent or by n-gram counting."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from peasy.models.protocol import Model
from peasy.training.nan_check import Diverged, find_nan_source, is_nonfinite
from peasy.training.objective import Batch, NGramCounting, Objective
from peasy.training.optimizer import Optimizer
from peasy.training.precision import autocast
from peasy.training.rng import seeded_step


class StepResult(NamedTuple):
    """Mean loss of the batch before the update, and the gradient norm."""

    loss: float
    grad_norm: float | None


class Learner(Protocol):
    """Updates a model on one batch, given as micro-batches."""

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer, for models trained by gradients."""

    def step(self, micro_batches: Sequence[Batch], step_number: int, lr_scale: float) -> StepResult:
        """Do one training step; `lr_scale` multiplies the learning rate."""


class GradientLearner:
    """Forward and backward pass for each micro-batch, gradient clipping, then one optimizer step."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        optimizer: Optimizer,
        *,
        seed: int,
        grad_clip: float | None = None,
        precision: str = "float32",
        compile: bool = False,
    ) -> None:
        self.model, self.objective, self.optimizer = model, objective, optimizer
        self.seed, self.grad_clip, self.precision = seed, grad_clip, precision
        self.device = str(model.device)
        self._compiled_hidden = torch.compile(model.hidden) if compile else None
        self._has_dropout = getattr(model.config, "dropout", 0.0) > 0

    def step(self, micro_batches: Sequence[Batch], step_number: int, lr_scale: float) -> StepResult:
        """Do one training step; raise on NaN or infinity before they reach the weights."""
        count = sum(map(self.objective.num_targets, micro_batches))
        self.optimizer.zero_grad()
        loss = 0.0
        with self._use_compiled(), self._seeded_step(step_number):
            for part in micro_batches:
                mean = self._mean_loss(part, count)
                mean.backward()
                loss += float(mean.detach())
        norm = float(self.optimizer.clip_grad_norm(self.grad_clip))
        if is_nonfinite(loss) or is_nonfinite(norm):
            raise self._find_nan_source(micro_batches, count, step_number)
        self.optimizer.step(lr_scale)
        return StepResult(loss, norm)

    def _mean_loss(self, micro_batch: Batch, count: int) -> Tensor:
        with autocast(self.precision, self.device):
            return self.objective.loss_sum(self.model, micro_batch) / count

    def _find_nan_source(self, micro_batches: Sequence[Batch], count: int, step: int) -> Diverged:
        def repeat_step() -> Tensor:
            with self._seeded_step(step):
                return torch.stack([self._mean_loss(part, count) for part in micro_batches]).sum()

        return find_nan_source(self.model, repeat_step, step)

    def _seeded_step(self, step: int) -> contextlib.AbstractContextManager[None]:
        return seeded_step(self.seed, step) if self._has_dropout else contextlib.nullcontext()

    @contextlib.contextmanager
    def _use_compiled(self) -> Iterator[None]:
        """Use the compiled forward pass only here: sampling and validation have varying lengths."""
        if self._compiled_hidden is None:
            yield
            return
        self.model.hidden = self._compiled_hidden  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.model.hidden


class CountingLearner:
    """Counts every batch; the loss is measured beforehand on a few of its sequences."""

    optimizer: Optimizer | None = None

    def __init__(self, model: Model, objective: NGramCounting, *, loss_rows: int = 2) -> None:
        self.model, self.objective, self.loss_rows = model, objective, loss_rows

    def step(self, micro_batches: Sequence[Batch], step_number: int, lr_scale: float) -> StepResult:
        """Measure the loss, then count one batch."""
        subset = {name: array[: self.loss_rows] for name, array in micro_batches[0].items()}
        with torch.inference_mode():
            loss = float(self.objective.loss_sum(self.model, subset)) / max(self.objective.num_targets(subset), 1)
        with torch.no_grad():
            for part in micro_batches:
                self.objective.count_ngrams(self.model, part)
        return StepResult(loss, None)
