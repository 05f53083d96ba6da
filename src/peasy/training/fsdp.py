"""FSDP2: sharded weights and optimizer, gathered only for sampling and saving."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from peasy.errors import InvalidInput, ResourceUnavailable
from peasy.models.build import build
from peasy.models.protocol import Model
from peasy.nn.block import Block
from peasy.training.learner import FullState
from peasy.training.muon import orthogonalise
from peasy.training.optimizer import MuonConfig, Optimizer, OptimizerConfig, linear_weights


def shard_model(loss_module: nn.Module, device: str) -> None:
    """Shard the weights of each block, then the remaining weights, over all processes."""
    mesh = init_device_mesh(torch.device(device).type, (dist.get_world_size(),))
    for module in loss_module.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(loss_module, mesh=mesh)


class ShardedOptimizer(Optimizer):
    """Optimizer on FSDP2 shards; its state is sharded like the weights."""

    def __init__(self, model: nn.Module, config: OptimizerConfig, *, bfloat16: bool = False) -> None:
        super().__init__(model, config, bfloat16=bfloat16)
        if isinstance(config, MuonConfig) and self._muon is not None:
            matrices = {name: cast(DTensor, weight) for name, weight in linear_weights(model).items()}
            self._muon = cast(Any, _ShardedMuon(matrices, config, torch.bfloat16 if bfloat16 else torch.float32))

    def clip_grad_norm(self, max_norm: float | None) -> Tensor:
        """Clip the global gradient norm, computed over all processes."""
        gradients = [weight.grad for weight in self.params.values() if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        if max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(list(self.params.values()), max_norm, norm, foreach=True)
        return norm

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load full tensors, saved by any number of processes, and shard them."""
        sharded: dict[str, Tensor] = {}
        for key, tensor in state.items():
            weight = self.params.get(_weight_name(key))
            sharded[key] = tensor if weight is None else _shard_like(weight, tensor)
        super().load_state_dict(sharded)


def _weight_name(key: str) -> str:
    """Return the name of the weight whose shape a state tensor has, e.g. for `adam.exp_avg.head.weight`."""
    for prefix in ("muon.", "adam.exp_avg_sq.", "adam.exp_avg."):
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return ""


class _ShardedMuon:
    """Muon with sharded momentum. Each matrix is gathered for its update, on every process, one after the other."""

    def __init__(self, matrices: Mapping[str, DTensor], config: MuonConfig, dtype: torch.dtype) -> None:
        self.matrices, self.config, self.dtype = matrices, config, dtype
        self.momentum = {name: torch.zeros_like(matrix) for name, matrix in matrices.items()}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update every matrix."""
        for name, matrix in self.matrices.items():
            if matrix.grad is None:
                continue
            self.momentum[name].lerp_(matrix.grad, 1 - self.config.momentum)
            update = cast(DTensor, matrix.grad.lerp(self.momentum[name], self.config.momentum)).full_tensor()
            rows, columns = update.shape
            wide = update if rows <= columns else update.mT
            orthogonal = orthogonalise(wide[None], self.config.ns_steps, self.dtype)[0].to(update.dtype)
            scaled_lr = lr * max(1.0, rows / columns) ** 0.5
            matrix.mul_(1 - lr * self.config.weight_decay)
            matrix.sub_(_shard_like(matrix, orthogonal if rows <= columns else orthogonal.mT), alpha=scaled_lr)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the momentum of each matrix."""
        return dict(self.momentum)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the momentum."""
        for name, momentum in self.momentum.items():
            momentum.copy_(state[name])


def _shard_like(weight: Tensor, full: Tensor) -> Tensor:
    """Return this process's shard of a full tensor, laid out like `weight`; no communication."""
    if not isinstance(weight, DTensor):
        return full
    on_device = full.to(weight.device).contiguous()
    return distribute_tensor(on_device, weight.device_mesh, weight.placements, src_data_rank=None)


def gather_model(model: Model, *, keep: bool) -> Model | None:
    """Gather the full model on the CPU where `keep` is true; a collective, so all ranks must call it."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            tensors[name] = full.detach().cpu()
    return _model_from_tensors(model, tensors) if keep else None


def _model_from_tensors(model: Model, tensors: Mapping[str, Tensor]) -> Model:
    """Build a model with the same config over these tensors."""
    copy = build(model.config, seed=None)
    copy.load_state_dict(dict(tensors), strict=True, assign=True)
    return copy.eval()


def gather_checkpoint(folder: Path, model: Model, optimizer: Optimizer, *, is_main: bool) -> FullState | None:
    """Write the shards of all processes (DCP, safetensors) and read them back as full tensors on rank 0.

    `folder` must be visible to all processes; it is deleted afterwards.
    """
    tensors = {f"weights.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"state.{name}": tensor for name, tensor in optimizer.state_dict().items()}
    # Scalars, equal on all ranks, come back from torch's consolidation as 0, so they are kept here.
    scalars = {name: tensors.pop(name) for name in [name for name, tensor in tensors.items() if not tensor.ndim]}
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True, enable_consolidation=True)
    try:
        dcp.save(tensors, storage_writer=writer)
    except dcp.api.CheckpointException as error:
        cause = next((failure[0] for failure in error.failures.values()), error)
        raise ResourceUnavailable(f"Cannot write the shards of {folder}: {str(cause)[:200]}.") from error
    if not is_main:
        return None
    files = sorted(folder.glob("model-*.safetensors"))
    if not files:
        raise InvalidInput(f"{folder} contains no shards.")
    full = scalars | {name: tensor.clone() for file in files for name, tensor in load_file(file).items()}
    shutil.rmtree(folder, ignore_errors=True)
    weights, state = (
        {name.removeprefix(prefix): tensor for name, tensor in full.items() if name.startswith(prefix)}
        for prefix in ("weights.", "state.")
    )
    return FullState(_model_from_tensors(model, weights), state)
