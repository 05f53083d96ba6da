"""Learners: one training step, by gradient descent or by n-gram counting; precision and seeding of a step."""

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.models.protocol import Model
from peasy.nn.functional import HAS_BFLOAT16
from peasy.training.objective import Batch, NGramCounting, Objective
from peasy.training.optimizer import Optimizer
from peasy.training.recipe import Precision, Recipe


class Diverged(InvalidInput):
    """Loss, gradient or weights became NaN or infinite."""

    code = "diverged"


class _StepResult(NamedTuple):
    """Mean loss of the batch before the update, and the gradient norm."""

    loss: float
    grad_norm: float | None


class FullState(NamedTuple):
    """Model and optimizer state as they are saved."""

    model: Model
    optimizer_state: Mapping[str, Tensor]


class Learner(ABC):
    """Trains a model in one process; `parallel` has the learner of several processes."""

    stopping = False
    """Whether the run ends after this step."""

    def __init__(self, model: Model, objective: Objective, optimizer: Optimizer | None = None) -> None:
        self.model, self.objective, self.optimizer = model, objective, optimizer

    @abstractmethod
    def step(self, micro_batches: Sequence[Batch], step_number: int, lr_scale: float) -> _StepResult:
        """Do one training step on a batch, given as micro-batches; `lr_scale` multiplies the learning rate."""

    def loss_sum(self, batch: Batch) -> Tensor:
        """Return the summed loss of a validation batch."""
        return self.objective.loss_sum(self.model, batch)

    def request_stop(self) -> None:
        """End the run after this step."""
        self.stopping = True

    @contextlib.contextmanager
    def inference_model(self) -> Iterator[Model | None]:
        """Full model in eval mode inside the block; None in a process that does not write."""
        yield self.model.eval()
        self.model.train()

    @contextlib.contextmanager
    def full_state(self) -> Iterator[FullState | None]:
        """State for a checkpoint inside the block; None in a process that does not write."""
        yield FullState(self.model, {} if self.optimizer is None else self.optimizer.state_dict())


class GradientLearner(Learner):
    """Forward and backward pass for each micro-batch, gradient clipping, then one optimizer step."""

    optimizer: Optimizer

    def __init__(
        self, model: Model, objective: Objective, optimizer: Optimizer, *, seed: int, grad_clip: float | None = None,
        precision: str = "float32", compile: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(model, objective, optimizer)
        self.seed, self.grad_clip, self.precision = seed, grad_clip, precision
        self.device = str(model.device)
        self._compiled_hidden = torch.compile(model.hidden) if compile else None
        self._has_dropout = getattr(model.config, "dropout", 0.0) > 0

    def step(self, micro_batches: Sequence[Batch], step_number: int, lr_scale: float) -> _StepResult:
        """Do one training step; raise on NaN or infinity before they reach the weights."""
        count = max(sum(map(self.objective.num_targets, micro_batches)), 1)  # cut conversations may have no answer
        self.optimizer.zero_grad()
        loss = 0.0
        with self._use_compiled(), self._seeded_step(step_number), self._communication():
            for number, part in enumerate(micro_batches, 1):
                loss += self._backward(part, count, number == len(micro_batches))
            norm = float(self.optimizer.clip_grad_norm(self.grad_clip))
        loss = self._reduce_loss(loss)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._find_nan_source(micro_batches, count, step_number)
        with self._communication():
            self.optimizer.step(lr_scale)
        return _StepResult(loss, norm)

    def _backward(self, micro_batch: Batch, count: int, is_last: bool) -> float:
        """Add the gradients of a micro-batch, and return its part of the mean loss."""
        mean = self._mean_loss(micro_batch, count)
        torch.autograd.backward(mean)
        return float(mean.detach())

    def _communication(self) -> contextlib.AbstractContextManager[None]:
        """Context in which processes exchange gradients."""
        return contextlib.nullcontext()

    def _reduce_loss(self, loss: float) -> float:
        """Return the loss over all processes."""
        return loss

    def _mean_loss(self, micro_batch: Batch, count: int) -> Tensor:
        with autocast(self.precision, self.device):
            return self.objective.loss_sum(self.model, micro_batch) / count

    def _find_nan_source(self, micro_batches: Sequence[Batch], count: int, step: int) -> Diverged:
        """Repeat the step with hooks on all modules and name the first source: weights, forward or backward pass."""
        for name, weight in self.model.named_parameters():
            if not _is_finite(weight):
                return diverged_error(step, f"the weights {name} contain NaN or infinity")
            weight.grad = None
        nonfinite: list[str] = []  # modules with such outputs, in the order of execution
        with contextlib.ExitStack() as hooks:
            for name, module in self.model.named_modules():

                def check_output(_: nn.Module, inputs: object, output: object, name: str = name) -> None:
                    if not all(map(_is_finite, _nested_tensors(output))):
                        nonfinite.append(name or type(self.model).__name__)

                hooks.callback(module.register_forward_hook(check_output).remove)
            with self._seeded_step(step):
                loss = torch.stack([self._mean_loss(part, count) for part in micro_batches]).sum()
            if nonfinite:
                return diverged_error(step, f"the first module with NaN or infinity in its output is {nonfinite[0]}")
            if not _is_finite(loss):
                return diverged_error(step, "the loss is not finite, although every module's output is")
            torch.autograd.backward(loss)
        gradients = {name: weight.grad for name, weight in self.model.named_parameters() if weight.grad is not None}
        bad_gradients = [name for name, gradient in gradients.items() if not _is_finite(gradient)]
        if not bad_gradients:
            return diverged_error(step, "the loss was not finite, but is when the step is repeated")
        # the backward pass runs from the last parameter to the first
        name = bad_gradients[-1].rpartition(".")[0] or type(self.model).__name__
        return diverged_error(step, f"the first module with NaN or infinity in its gradient is {name}")

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


class CountingLearner(Learner):
    """Counts every batch; the loss is measured beforehand on a few of its sequences."""

    objective: NGramCounting

    def __init__(self, model: Model, objective: NGramCounting, *, loss_rows: int = 2) -> None:
        super().__init__(model, objective)
        self.loss_rows = loss_rows

    def step(self, micro_batches: Sequence[Batch], step_number: int, lr_scale: float) -> _StepResult:
        """Measure the loss, then count one batch."""
        subset = {name: array[: self.loss_rows] for name, array in micro_batches[0].items()}
        with torch.inference_mode():
            loss = float(self.objective.loss_sum(self.model, subset)) / max(self.objective.num_targets(subset), 1)
        with torch.no_grad():
            for part in micro_batches:
                self.objective.count_ngrams(self.model, part)
        return _StepResult(loss, None)


def make_learner(model: Model, objective: Objective, recipe: Recipe) -> Learner:
    """Return the learner of one process for an objective."""
    if isinstance(objective, NGramCounting):
        return CountingLearner(model, objective)
    precision = choose_precision(recipe.precision, str(model.device))
    optimizer = Optimizer(model, recipe.optimizer, bfloat16=precision == "bfloat16")
    return GradientLearner(
        model, objective, optimizer, seed=recipe.seed, grad_clip=recipe.grad_clip, precision=precision,
        compile=recipe.compile,
    )  # fmt: skip


def split_batch(batch: Batch, num_parts: int, device: str) -> list[Batch]:
    """Split a batch into equal micro-batches on the model's device."""
    on_device = batch if device == "cpu" else {name: array.to(device) for name, array in batch.items()}
    if num_parts == 1:
        return [on_device]
    chunks = {name: array.chunk(num_parts) for name, array in on_device.items()}
    return [{name: pieces[i] for name, pieces in chunks.items()} for i in range(len(next(iter(chunks.values()))))]


def choose_precision(precision: Precision, device: str = "cpu") -> Literal["float32", "bfloat16"]:
    """Resolve "auto" to bfloat16 if the hardware has bfloat16 matrix products; without them float32 is faster."""
    if precision != "auto":
        return precision
    if device.startswith("cuda"):
        supported = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    else:
        supported = device == "cpu" and HAS_BFLOAT16
    return "bfloat16" if supported else "float32"


def autocast(precision: str, device: str = "cpu") -> contextlib.AbstractContextManager[object]:
    """Autocast context (mixed precision): matrix products in bfloat16; weights and reductions stay float32."""
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)


def _derive_seed(seed: int, *counters: int) -> int:
    """Derive a seed from a seed and a position: no random state is saved."""
    return int(np.random.SeedSequence([seed % 2**64, *counters]).generate_state(1, np.uint64)[0])


def seeded_generator(seed: int, *counters: int) -> torch.Generator:
    """Return a generator seeded for one position.

    >>> seeded_generator(1, 2).initial_seed() == seeded_generator(2, 1).initial_seed()
    False
    """
    return torch.Generator().manual_seed(_derive_seed(seed, *counters))


@contextlib.contextmanager
def seeded_step(seed: int, step: int) -> Iterator[None]:
    """Seed torch's global generator (dropout) for one step inside the block; restore it afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(_derive_seed(seed, step))
        yield


def check_weights_finite(model: nn.Module, step: int) -> None:
    """Raise if weights contain NaN or infinity, so that they are never saved."""
    for name, weight in model.state_dict().items():
        if not _is_finite(weight):
            raise diverged_error(step, f"the weights {name} contain NaN or infinity")


def diverged_error(step: int, reason: str) -> Diverged:
    """Return the error of a step, with what to do next."""
    hint = "Lower the learning rate (--set optimizer.lr=...), and continue from the last checkpoint with --resume."
    return Diverged(f"Step {step}: {reason}.", hint=hint)


def _nested_tensors(output: object) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, tuple | list):
        for item in output:
            yield from _nested_tensors(item)


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
