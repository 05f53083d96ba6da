"""Learners: how one batch changes a model, by its gradient or by counting."""

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
    """The mean loss of a step's batch before the step, and how long its gradient was."""

    loss: float
    norm: float | None


class Learner(Protocol):
    """Changes a model by one batch, given in parts."""

    @property
    def optimizer(self) -> Optimizer | None:
        """What moves the weights, where they move by gradients."""

    def learn(self, parts: Sequence[Batch], step: int, factor: float) -> Learned:
        """Do step number `step` at this share of the full rate."""


class GradientLearner:
    """One pass forwards and backwards for each part of the batch, then one step of the optimizer."""

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
        """Do one step; NaN and infinity are caught before they reach a weight."""
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
        def again() -> Tensor:
            with self._drawing(step):
                return torch.stack([self._mean(part, count) for part in parts]).sum()

        return blame(self.model, again, step)

    def _drawing(self, step: int) -> contextlib.AbstractContextManager[None]:
        return drawing(self.seed, step) if self._draws else contextlib.nullcontext()

    @contextlib.contextmanager
    def _compiled(self) -> Iterator[None]:
        """The compiled pass stands in only here: samples and validation have other lengths each time."""
        if self._hidden is None:
            yield
            return
        self.model.hidden = self._hidden  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.model.hidden


class CountingLearner:
    """Every batch is counted; its loss is taken from a few rows before."""

    optimizer: Optimizer | None = None

    def __init__(self, model: Model, objective: Counting, *, rows: int = 2) -> None:
        self.model, self.objective, self.rows = model, objective, rows

    def learn(self, parts: Sequence[Batch], step: int, factor: float) -> Learned:
        """Count one batch."""
        few = {name: array[: self.rows] for name, array in parts[0].items()}
        with torch.inference_mode():
            loss = float(self.objective.total(self.model, few)) / max(self.objective.count(few), 1)
        with torch.no_grad():
            for part in parts:
                self.objective.observe(self.model, part)
        return Learned(loss, None)
