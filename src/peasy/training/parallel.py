"""Data-parallel training (DDP or FSDP2); rank 0 logs and saves.

DDP replicates the weights, FSDP2 shards them. The global batch does not depend on the number of processes, so neither
does the loss curve, and a run may resume with another number of processes.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from peasy.checkpoint.store import read_checkpoint
from peasy.checkpoint.tensors import TensorFile
from peasy.datasets import rank_slice
from peasy.errors import InvalidInput
from peasy.models.encoder import Encoder
from peasy.models.protocol import Model
from peasy.training import attention_snapshots, fsdp, loop
from peasy.training.distributed import ProcessGroup
from peasy.training.event import Event, Finished, Sampled, Saved
from peasy.training.learner import GradientLearner, StepResult
from peasy.training.lock import run_lock
from peasy.training.nan_check import Diverged, is_nonfinite
from peasy.training.objective import Batch, Contrastive, NGramCounting, Objective
from peasy.training.optimizer import Optimizer
from peasy.training.precision import autocast
from peasy.training.rng import seeded_step
from peasy.training.state import (
    CHECKPOINTS_FOLDER,
    STATE_FILE,
    Progress,
    latest_state,
    load_state,
    remove_leftovers,
    save_state,
    weights_hash,
)


def train(spec: loop.TrainSpec, group: ProcessGroup) -> Iterator[Event]:
    """Train like `loop.train`, in one or several processes; the recipe chooses DDP or FSDP."""
    if group.is_single:
        yield from loop.train(spec)
        return
    if isinstance(spec.objective, NGramCounting):
        raise InvalidInput(
            "An n-gram model is trained in a single process.", hint="Run without torchrun and --num-processes."
        )
    group.stop_requested = group.stopping = False
    with run_lock(spec.run) if group.is_main else contextlib.nullcontext():
        if group.is_main:
            remove_leftovers(spec.run)
        group.barrier()
        with DistributedTrainLoop(replace(spec, clock=group.clock), group) as run:
            yield from _stop_when_closed(run.events(), group)


def _stop_when_closed(events: Iterator[Event], group: ProcessGroup) -> Iterator[Event]:
    """Turn closing the generator into a stop request; all ranks stop together after the same step."""
    for event in events:
        try:
            yield event
        except GeneratorExit:
            group.stop_requested = True
            for _ in events:
                pass
            raise


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
        model: Any = self.model
        embed = model.embed
        model.embed = lambda *ids, **more: self.group.all_gather(embed(*ids, **more))
        try:
            total = self.objective.loss_sum(model, batch)
        finally:
            del model.embed
        return total.detach() / self.group.world_size + (total - total.detach())


class DistributedLearner(GradientLearner):
    """Gradient learner of one rank: computes its rows of every micro-batch; gradients are summed over all ranks."""

    def __init__(self, group: ProcessGroup, loss_module: nn.Module, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group, self.loss_module = group, loss_module

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
        if isinstance(self.loss_module, DistributedDataParallel):
            return super()._find_nan_source(micro_batches, count, step)
        hint = "Lower the learning rate (--set optimizer.lr=...), and continue from the last checkpoint with --resume."
        return Diverged(f"Step {step}: the loss or its gradient is NaN or infinite.", hint=hint)


class _DistributedObjective(Objective):
    """Validation objective: splits the rows over the ranks if possible; every rank gets the sum."""

    kind = "distributed"

    def __init__(self, objective: Objective, loss_module: nn.Module, group: ProcessGroup) -> None:
        self.inner, self.loss_module, self.group = objective, loss_module, group

    def prepare(self, batch: Batch, config: Any, rng: torch.Generator) -> Batch:
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


class DistributedTrainLoop(loop.TrainLoop):
    """Training loop of one rank: all ranks do the same steps, only rank 0 writes."""

    def __init__(self, spec: loop.TrainSpec, group: ProcessGroup) -> None:
        self.group, self.strategy = group, spec.recipe.parallel
        self.weights_digest = ""
        super().__init__(spec)

    def restore(self) -> None:
        """Restore rank 0's latest checkpoint on all ranks, then wrap the model and create the optimizer."""
        spec, group = self.spec, self.group
        folder, self.warning = latest_state(spec.run) if group.is_main else (None, None)
        path = group.broadcast_str("" if folder is None else str(folder))
        self.last_checkpoint = Path(path) if path else None
        self.progress = (
            Progress() if self.last_checkpoint is None else load_state(self.last_checkpoint, spec.model, None)
        )
        self.weights_digest = weights_hash(spec.model.state_dict()) if group.is_main else ""
        loss_module = self._wrap(LossModule(spec.model, spec.objective, group))
        learner = self._make_learner(loss_module)
        if self.last_checkpoint is not None:
            file = TensorFile(read_checkpoint(self.last_checkpoint, verified=True).folder, STATE_FILE)
            learner.optimizer.load_state_dict({name: file.tensor(name) for name in file.info})
        self.learner = learner
        self.spec = replace(spec, objective=_DistributedObjective(spec.objective, loss_module, group))

    def _wrap(self, loss_module: LossModule) -> nn.Module:
        if self.strategy == "fsdp":
            fsdp.shard_model(loss_module, self.device)
            return loss_module
        with self.group.detect_lost_ranks():
            # Not every objective uses an encoder's pooler or head.
            unused = isinstance(self.model, Encoder)
            return DistributedDataParallel(loss_module, find_unused_parameters=unused)

    def _make_learner(self, loss_module: nn.Module) -> DistributedLearner:
        recipe, objective = self.recipe, self.spec.objective
        optimizer_class = fsdp.ShardedOptimizer if self.strategy == "fsdp" else Optimizer
        optimizer = optimizer_class(self.model, recipe.optimizer, bfloat16=self.precision == "bfloat16")
        return DistributedLearner(
            self.group, loss_module, self.model, objective, optimizer, seed=recipe.seed, grad_clip=recipe.grad_clip,
            precision=self.precision, compile=recipe.compile and self.strategy == "ddp",
        )  # fmt: skip

    def open_logs(self) -> None:
        """Open the logs on rank 0 only."""
        if self.group.is_main:
            super().open_logs()

    def __exit__(self, *error: object) -> None:
        if self.group.is_main:
            super().__exit__(*error)

    def events(self) -> Iterator[Event]:
        """Yield all events until the budget is used up or all ranks agree to stop."""
        yield self.emit(self._started())
        while self.fraction_done < 1.0:
            yield from self._run_step()
            if self.group.stopping:
                self.save()
                return
        folder = self.last_checkpoint or self.save().folder
        step, tokens, elapsed = self.progress.step, self.progress.tokens, self.budget.elapsed
        yield self.emit(Finished(step, folder, self.weights_digest, self.loss, self.validation_loss, tokens, elapsed))

    def sample(self, sample_fn: loop.SampleFn) -> Sampled:
        """Generate samples on rank 0; the other ranks only take part in gathering the model."""
        model = self._full_model()
        sampled = Sampled(self.progress.step, (), ()) if model is None else sample_fn(model, self.progress.step)
        self.group.broadcast_str()
        self.model.train()
        return sampled

    def write_attention(self, sentence: attention_snapshots.TrackedSentence, stopped: bool) -> None:
        """Write the attention snapshot on rank 0."""
        model = self._full_model()
        if model is not None:
            attention_snapshots.write_snapshot(self.spec.run, self.progress.step, model, sentence, stopped=stopped)
        self.group.broadcast_str()

    def _full_model(self) -> Model | None:
        """Return the full model in eval mode on rank 0; all ranks must call it."""
        if self.strategy == "fsdp":
            with self.group.detect_lost_ranks():
                return fsdp.gather_model(self.model, keep=self.group.is_main)
        return self.model.eval() if self.group.is_main else None

    def emit(self, event: Event) -> Event:
        """Emit the event on rank 0 only."""
        return super().emit(event) if self.group.is_main else event

    def save(self) -> Saved:
        """Write one checkpoint on rank 0, identical to that of a single process."""
        self.progress = replace(self.progress, elapsed=self.budget.elapsed)
        target = self.spec.run / CHECKPOINTS_FOLDER / f"step-{self.progress.step:06}"
        model, optimizer = self._gather_state(target)
        self.last_checkpoint, self.last_save_time = target, self.budget.elapsed
        if self.group.is_main:
            self.metrics.flush()
            self.samples.flush()
            tokenizers = self.spec.tokenizer, self.spec.target_tokenizer
            save_state(self.spec.run, model, optimizer, self.progress, *tokenizers, keep=self.recipe.keep_checkpoints)
            self.weights_digest = weights_hash(model.state_dict())
        self.group.broadcast_str()  # the other ranks wait until rank 0 has written
        event = Saved(self.progress.step, target, self.weights_digest)
        self.emit(event)
        return event

    def _gather_state(self, target: Path) -> tuple[Any, Any]:
        optimizer = self.learner.optimizer
        assert optimizer is not None
        if self.strategy == "ddp":
            return self.model, optimizer
        with self.group.detect_lost_ranks():
            shards = target.with_name(f".{target.name}.part-shards")
            gathered = fsdp.gather_checkpoint(shards, self.model, optimizer, is_main=self.group.is_main)
        return gathered or (None, None)
