"""Data-parallel training (DDP or FSDP2); rank 0 logs and saves.

DDP replicates the weights, FSDP2 shards them. The global batch does not depend on the number of processes, so neither
does the loss curve, and a run may resume with another number of processes.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from peasy.checkpoint.safe_folder import SafeFolder
from peasy.datasets import rank_slice
from peasy.errors import InvalidInput
from peasy.models.config import ModelConfig
from peasy.models.encoder import Encoder
from peasy.models.protocol import Model
from peasy.training import fsdp
from peasy.training.attention_snapshots import trim_snapshots
from peasy.training.distributed import ProcessGroup
from peasy.training.event import Event
from peasy.training.learner import (
    FullState,
    GradientLearner,
    StepResult,
    autocast,
    choose_precision,
    seeded_step,
)
from peasy.training.loop import TrainLoop, TrainSpec, make_checkpointer
from peasy.training.metrics_log import MetricsRecorder
from peasy.training.nan_check import Diverged, diverged_error, is_nonfinite
from peasy.training.objective import Batch, Contrastive, NGramCounting, Objective
from peasy.training.optimizer import Optimizer
from peasy.training.run_folder import run_lock
from peasy.training.state import Progress, latest_state, load_optimizer_state, load_state, remove_leftovers

E = TypeVar("E", bound=Event)


def train(spec: TrainSpec, group: ProcessGroup) -> Iterator[Event]:
    """Train like `loop.train`, in several processes; the recipe chooses DDP or FSDP."""
    if isinstance(spec.objective, NGramCounting):
        raise InvalidInput(
            "An n-gram model is trained in a single process.", hint="Run without torchrun and --num-processes."
        )
    group.stop_requested = group.stopping = False
    with run_lock(spec.run) if group.is_main else contextlib.nullcontext():
        if group.is_main:
            remove_leftovers(spec.run)
        group.barrier()
        newest, warning = latest_state(spec.run) if group.is_main else (None, None)
        path = group.broadcast_str("" if newest is None else str(newest))
        newest = Path(path) if path else None
        progress = Progress() if newest is None else load_state(newest, spec.model, None)
        checkpointer = make_checkpointer(spec, newest)  # before the weights are sharded
        learner = _DistributedLearner(spec, group)
        if newest is not None:
            load_optimizer_state(SafeFolder(newest), learner.optimizer)
        objective = _DistributedObjective(spec.objective, learner.loss_module, group)
        spec = replace(spec, clock=group.clock, objective=objective, warning=warning)
        if group.is_main:
            trim_snapshots(spec.run, progress.step)
        sinks = (*spec.recipe.sinks, *spec.sinks)
        with MetricsRecorder(spec.run, progress.step, sinks) if group.is_main else _SilentRecorder() as recorder:
            yield from TrainLoop(spec, learner, recorder, checkpointer, progress).events()


class _SilentRecorder(MetricsRecorder):
    """Recorder of the ranks that write nothing."""

    def __init__(self) -> None:
        pass

    def record(self, event: E) -> E:
        return event

    def flush(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


class LossModule(nn.Module):
    """Model and objective as one module (batch in, summed loss out), to be wrapped by DDP or FSDP."""

    def __init__(self, model: Model, objective: Objective, group: ProcessGroup) -> None:
        super().__init__()
        self.model, self.objective, self.group = model, objective, group

    def forward(self, batch: Batch) -> Tensor:
        """Return the summed loss of these sequences."""
        if isinstance(self.objective, Contrastive) and torch.is_grad_enabled():
            return self._loss_over_all_ranks(batch)
        return self.objective.loss_sum(self.model, batch)

    def _loss_over_all_ranks(self, batch: Batch) -> Tensor:
        """Use the texts of all ranks as negatives: full loss on each rank, gradients for its own rows."""
        model = self.model
        assert isinstance(model, Encoder)
        embed = model.embed
        gathered = lambda ids, padding_mask=None: self.group.all_gather(embed(ids, padding_mask=padding_mask))  # noqa: E731
        model.embed = gathered  # type: ignore[method-assign]
        try:
            total = self.objective.loss_sum(model, batch)
        finally:
            del model.embed
        return total.detach() / self.group.world_size + (total - total.detach())


class _DistributedLearner(GradientLearner):
    """Gradient learner of one rank: computes its rows of every micro-batch; gradients are summed over all ranks."""

    def __init__(self, spec: TrainSpec, group: ProcessGroup) -> None:
        recipe, device = spec.recipe, str(spec.model.device)
        self.group, self.is_sharded = group, recipe.parallel == "fsdp"
        self.loss_module: nn.Module = LossModule(spec.model, spec.objective, group)
        if self.is_sharded:
            fsdp.shard_model(self.loss_module, device)
        else:
            with group.detect_lost_ranks():
                # Not every objective uses an encoder's pooler or head.
                unused = isinstance(spec.model, Encoder)
                self.loss_module = DistributedDataParallel(self.loss_module, find_unused_parameters=unused)
        precision = choose_precision(recipe.precision, device)
        optimizer_class = fsdp.ShardedOptimizer if self.is_sharded else Optimizer
        optimizer = optimizer_class(spec.model, recipe.optimizer, bfloat16=precision == "bfloat16")
        super().__init__(
            spec.model, spec.objective, optimizer, seed=recipe.seed, grad_clip=recipe.grad_clip, precision=precision,
            compile=recipe.compile and not self.is_sharded,
        )  # fmt: skip

    def step(self, micro_batches: Sequence[Batch], step_number: int, lr_scale: float) -> StepResult:
        """Do one training step on all ranks."""
        count = sum(map(self.objective.num_targets, micro_batches))
        local_parts = [local_rows(part, self.group) for part in micro_batches]
        self.optimizer.zero_grad()
        loss = 0.0
        with self._use_compiled(), self._seeded_step(step_number), self.group.detect_lost_ranks():
            for number, part in enumerate(local_parts):
                with self._no_sync(number + 1 < len(local_parts)), autocast(self.precision, self.device):
                    total = self.loss_module(part) / count
                    (total * self.group.world_size).backward()  # DDP and FSDP average gradients over ranks
                loss += float(total.detach())
            norm = float(self.optimizer.clip_grad_norm(self.grad_clip))
        loss = self.group.reduce_step(loss)
        self.stopping = self.group.stopping
        if is_nonfinite(loss) or is_nonfinite(norm):
            raise self._find_nan_source(micro_batches, count, step_number)
        with self.group.detect_lost_ranks():
            self.optimizer.step(lr_scale)
        return StepResult(loss, norm)

    def _seeded_step(self, step: int) -> contextlib.AbstractContextManager[None]:
        """Seed dropout differently on each rank."""
        return seeded_step(self.seed + self.group.rank, step) if self._has_dropout else contextlib.nullcontext()

    def _no_sync(self, skip: bool) -> contextlib.AbstractContextManager[None]:
        """Skip gradient synchronisation except for the last micro-batch."""
        if skip and isinstance(self.loss_module, DistributedDataParallel):
            return self.loss_module.no_sync()
        return contextlib.nullcontext()

    def _find_nan_source(self, micro_batches: Sequence[Batch], count: int, step: int) -> Diverged:
        if not self.is_sharded:
            return super()._find_nan_source(micro_batches, count, step)
        return diverged_error(step, "the loss or its gradient is NaN or infinite")

    def request_stop(self) -> None:
        """Request a stop: all ranks stop together after the same step."""
        self.group.stop_requested = True

    @contextlib.contextmanager
    def inference_model(self) -> Iterator[Model | None]:
        """Full model in eval mode on rank 0, None on the others; they wait until the end of the block."""
        model = self.model.eval() if self.group.is_main else None
        if self.is_sharded:
            with self.group.detect_lost_ranks():
                model = fsdp.gather_model(self.model, keep=self.group.is_main)
        yield model
        self.group.broadcast_str()
        self.model.train()

    @contextlib.contextmanager
    def full_state(self, folder: Path) -> Iterator[FullState | None]:
        """Full state on rank 0, None on the others; they wait until the end of the block."""
        if self.is_sharded:
            with self.group.detect_lost_ranks():
                shards = folder.with_name(f".{folder.name}.part-shards")
                yield fsdp.gather_checkpoint(shards, self.model, self.optimizer, is_main=self.group.is_main)
        else:
            yield FullState(self.model, self.optimizer.state_dict()) if self.group.is_main else None
        self.group.broadcast_str()


class _DistributedObjective(Objective):
    """Validation objective: splits the rows over the ranks if possible; every rank gets the sum."""

    kind = "distributed"

    def __init__(self, objective: Objective, loss_module: nn.Module, group: ProcessGroup) -> None:
        self.inner, self.loss_module, self.group = objective, loss_module, group

    def prepare(self, batch: Batch, config: ModelConfig, rng: torch.Generator) -> Batch:
        return self.inner.prepare(batch, config, rng)

    def num_targets(self, batch: Batch) -> int:
        return self.inner.num_targets(batch)

    def loss_sum(self, model: Model, batch: Batch) -> Tensor:
        loss_module = (
            self.loss_module.module if isinstance(self.loss_module, DistributedDataParallel) else self.loss_module
        )
        rows = len(batch["ids"])
        if rows % self.group.world_size or isinstance(self.inner, Contrastive):
            return loss_module(batch)
        return self.group.all_reduce(loss_module(local_rows(batch, self.group)).detach().clone())


def local_rows(batch: Batch, group: ProcessGroup) -> Batch:
    """Return this rank's rows of a batch; labels are kept whole."""
    rows = rank_slice(len(batch["ids"]), world_size=group.world_size, rank=group.rank)
    return {name: array if name == "label" else array[rows] for name, array in batch.items()}
