"""Data-parallel training (DDP or FSDP2); rank 0 logs and saves.

DDP replicates the weights, FSDP2 shards them. The global batch does not depend on the number of processes, so neither
does the loss curve, and a run may resume with another number of processes.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from peasy.checkpoint.safe_folder import SafeFolder
from peasy.datasets.batches import rank_slice
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.encoder import Encoder
from peasy.models.protocol import Model
from peasy.nn.block import Block
from peasy.training import learner as learning
from peasy.training import optimizer as optimizers
from peasy.training.attention_snapshots import trim_snapshots
from peasy.training.distributed import ProcessGroup
from peasy.training.event import Event
from peasy.training.loop import TrainLoop, TrainSpec, make_checkpointer
from peasy.training.metrics_log import MetricsRecorder
from peasy.training.objective import Batch, Contrastive, NGramCounting, Objective
from peasy.training.optimizer import MuonConfig, MuonOptimizer, Optimizer, OptimizerConfig
from peasy.training.run_folder import run_lock
from peasy.training.state import Progress, latest_state, load_optimizer_state, load_state, remove_leftovers


class _ShardedOptimizer(Optimizer):
    """Optimizer on FSDP2 shards; its state is sharded like the weights."""

    def __init__(self, model: nn.Module, config: OptimizerConfig, *, bfloat16: bool = False) -> None:
        super().__init__(model, config, bfloat16=bfloat16)
        if isinstance(config, MuonConfig) and self._muon is not None:
            self._muon = _ShardedMuon(optimizers.linear_weights(model), config, self._muon.dtype)

    def grad_norm(self) -> Tensor:
        norm = super().grad_norm()
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load full tensors, saved by any number of processes, and shard them."""
        sharded: dict[str, Tensor] = {}
        for key, tensor in state.items():
            # a state tensor such as `adam.exp_avg.head.weight` has the shape of the weight; `adam.step.` is a scalar
            name = re.match(r"(?:muon|adam\.exp_avg_sq|adam\.exp_avg)\.(.*)", key)
            weight = self.params.get(name[1]) if name else None
            sharded[key] = tensor if weight is None else _shard_like(weight, tensor)
        super().load_state_dict(sharded)


class _ShardedMuon(MuonOptimizer):
    """Muon with sharded momentum. Each matrix is gathered for its update, on every process, one after the other."""

    def __init__(self, matrices: Mapping[str, Tensor], config: MuonConfig, dtype: torch.dtype) -> None:
        self.matrices, self.config, self.dtype = matrices, config, dtype
        self.momentum = {name: torch.zeros_like(matrix) for name, matrix in matrices.items()}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        for name, matrix in self.matrices.items():
            if matrix.grad is None:
                continue
            self.momentum[name].lerp_(matrix.grad, 1 - self.config.momentum)
            update = cast(DTensor, matrix.grad.lerp(self.momentum[name], self.config.momentum)).full_tensor()
            rows, columns = update.shape
            wide = update if rows <= columns else update.mT
            orthogonal = optimizers.orthogonalise(wide[None], self.config.ns_steps, self.dtype)[0].to(update.dtype)
            scaled_lr = lr * max(1.0, rows / columns) ** 0.5
            matrix.mul_(1 - lr * self.config.weight_decay)
            matrix.sub_(_shard_like(matrix, orthogonal if rows <= columns else orthogonal.mT), alpha=scaled_lr)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.momentum)


def _shard_like(weight: Tensor, full: Tensor) -> Tensor:
    """Return this process's shard of a full tensor, laid out like `weight`; no communication."""
    if not isinstance(weight, DTensor):
        return full
    on_device = full.to(weight.device).contiguous()
    return distribute_tensor(on_device, weight.device_mesh, weight.placements, src_data_rank=None)


def _gather(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Gather full tensors on the CPU where `keep` is true, one by one; a collective, so all ranks must call it."""
    gathered: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            gathered[name] = full.detach().cpu()
    return gathered


def _gather_model(model: Model, *, keep: bool) -> Model | None:
    tensors = _gather(model.state_dict(), keep=keep)
    if not keep:
        return None
    copy = build(model.config, seed=None)
    copy.load_state_dict(tensors, strict=True, assign=True)
    return copy.eval()


def train(spec: TrainSpec, group: ProcessGroup) -> Iterator[Event]:
    """Train like `loop.train`, in several processes; the recipe chooses DDP or FSDP."""
    if isinstance(spec.objective, NGramCounting):
        hint = "Run without torchrun and --num-processes."
        raise InvalidInput("An n-gram model is trained in a single process.", hint=hint)
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
        spec = replace(spec.with_warning(warning), clock=group.clock)
        if group.is_main:
            trim_snapshots(spec.run, progress.step)
        sinks = (*spec.recipe.sinks, *spec.sinks)
        with MetricsRecorder(spec.run if group.is_main else None, progress.step, sinks) as recorder:
            yield from TrainLoop(spec, learner, recorder, checkpointer, progress).events()


class LossModule(nn.Module):
    """Model and objective as one module (batch in, summed loss out), to be wrapped by DDP or FSDP."""

    def __init__(self, model: Model, objective: Objective, group: ProcessGroup) -> None:
        super().__init__()
        self.model, self.objective, self.group = model, objective, group

    def forward(self, batch: Batch) -> Tensor:
        """Return the summed loss of these sequences."""
        if isinstance(self.objective, Contrastive) and torch.is_grad_enabled():
            # Use the texts of all ranks as negatives: full loss on each rank, gradients for its own rows.
            model = self.model
            assert isinstance(model, Encoder)
            embed = model.embed
            model.embed = lambda ids, **masks: self.group.all_gather(embed(ids, **masks))  # type: ignore[method-assign]
            try:
                total = self.objective.loss_sum(model, batch)
            finally:
                del model.embed
            return total.detach() / self.group.world_size + (total - total.detach())
        return self.objective.loss_sum(self.model, batch)


class _DistributedLearner(learning.GradientLearner):
    """Gradient learner of one rank: computes its rows of every micro-batch; gradients are summed over all ranks."""

    def __init__(self, spec: TrainSpec, group: ProcessGroup) -> None:
        recipe, device = spec.recipe, str(spec.model.device)
        self.group, self.is_sharded = group, recipe.parallel == "fsdp"
        self.loss_module: nn.Module = LossModule(spec.model, spec.objective, group)
        if self.is_sharded:
            # Shard the weights of each block, then the remaining weights, over all processes.
            mesh = init_device_mesh(torch.device(device).type, (dist.get_world_size(),))
            blocks = [module for module in self.loss_module.modules() if isinstance(module, Block)]
            for module in (*blocks, self.loss_module):
                fully_shard(module, mesh=mesh)
        else:
            with group.detect_lost_ranks():
                # Not every objective uses an encoder's pooler or head.
                unused = isinstance(spec.model, Encoder)
                self.loss_module = DistributedDataParallel(self.loss_module, find_unused_parameters=unused)
        precision = learning.choose_precision(recipe.precision, device)
        optimizer_class = _ShardedOptimizer if self.is_sharded else Optimizer
        optimizer = optimizer_class(spec.model, recipe.optimizer, bfloat16=precision == "bfloat16")
        super().__init__(
            spec.model, spec.objective, optimizer, seed=recipe.seed + group.rank, grad_clip=recipe.grad_clip,
            precision=precision, compile=recipe.compile and not self.is_sharded,
        )  # fmt: skip  # the seed of dropout differs on each rank

    def _backward(self, micro_batch: Batch, count: int, is_last: bool) -> float:
        """Compute this rank's rows; gradients are synchronised with the last micro-batch only."""
        sync: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if isinstance(self.loss_module, DistributedDataParallel) and not is_last:
            sync = self.loss_module.no_sync()
        with sync, learning.autocast(self.precision, self.device):
            total: Tensor = self.loss_module(local_rows(micro_batch, self.group)) / count
            torch.autograd.backward(total * self.group.world_size)  # DDP and FSDP average gradients over ranks
        return float(total.detach())

    def _communication(self) -> contextlib.AbstractContextManager[None]:
        return self.group.detect_lost_ranks()

    def _reduce_loss(self, loss: float) -> float:
        loss = self.group.reduce_step(loss)
        self.stopping = self.group.stopping
        return loss

    def _find_nan_source(self, micro_batches: Sequence[Batch], count: int, step: int) -> learning.Diverged:
        if not self.is_sharded:
            return super()._find_nan_source(micro_batches, count, step)
        return learning.diverged_error(step, "the loss or its gradient is NaN or infinite")

    def request_stop(self) -> None:
        """Request a stop: all ranks stop together after the same step."""
        self.group.stop_requested = True

    @contextlib.contextmanager
    def inference_model(self) -> Iterator[Model | None]:
        """Full model in eval mode on rank 0, None on the others; they wait until the end of the block."""
        model = self.model.eval() if self.group.is_main else None
        if self.is_sharded:
            with self.group.detect_lost_ranks():
                model = _gather_model(self.model, keep=self.group.is_main)
        yield model
        self.group.broadcast_str()
        self.model.train()

    @contextlib.contextmanager
    def full_state(self) -> Iterator[learning.FullState | None]:
        """Full state on rank 0, None on the others; they wait until the end of the block."""
        model, state, is_main = self.model, self.optimizer.state_dict(), self.group.is_main
        if self.is_sharded:
            with self.group.detect_lost_ranks():
                model, state = _gather_model(model, keep=is_main) or model, _gather(state, keep=is_main)
        yield learning.FullState(model, state) if is_main else None
        self.group.broadcast_str()

    def loss_sum(self, batch: Batch) -> Tensor:
        """Split the rows of a validation batch over the ranks if possible; every rank gets the sum."""
        loss_module = self.loss_module
        if isinstance(loss_module, DistributedDataParallel):
            loss_module = loss_module.module
        if len(batch["ids"]) % self.group.world_size or isinstance(self.objective, Contrastive):
            loss: Tensor = loss_module(batch)
            return loss
        return self.group.all_reduce(loss_module(local_rows(batch, self.group)).detach().clone())


def local_rows(batch: Batch, group: ProcessGroup) -> Batch:
    """Return this rank's rows of a batch; labels are kept whole."""
    rows = rank_slice(len(batch["ids"]), world_size=group.world_size, rank=group.rank)
    return {name: array if name == "label" else array[rows] for name, array in batch.items()}
