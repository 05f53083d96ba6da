"""Weights in shards: each process holds a part of every matrix (FSDP2), made whole only to sample and to save."""

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

from peasy.errors import InvalidInput, NoRoom
from peasy.models.build import build
from peasy.models.protocol import Model
from peasy.nn.block import Block
from peasy.training.muon import orthogonalise
from peasy.training.optimizer import Muon, Optimizer, OptimizerRecipe, linear_matrices


def shard(asked: nn.Module, device: str) -> None:
    """Cut the weights of each block, then what is left, over all processes; each keeps its part of what it has."""
    mesh = init_device_mesh(torch.device(device).type, (dist.get_world_size(),))
    for module in asked.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(asked, mesh=mesh)


class ShardedOptimizer(Optimizer):
    """The same steps on shards: what it remembers is cut as the weights are."""

    def __init__(self, model: nn.Module, recipe: OptimizerRecipe, *, bfloat16: bool = False) -> None:
        super().__init__(model, recipe, bfloat16=bfloat16)
        if isinstance(recipe, Muon) and self._muon is not None:
            matrices = {name: cast(DTensor, weight) for name, weight in linear_matrices(model).items()}
            self._muon = cast(Any, ShardedMuon(matrices, recipe, torch.bfloat16 if bfloat16 else torch.float32))

    def clip(self, most: float | None) -> Tensor:
        """The length of all gradients, of all processes together."""
        gradients = [weight.grad for weight in self.named.values() if weight.grad is not None]
        length = torch.nn.utils.get_total_norm(gradients, foreach=True)
        length = length.full_tensor() if isinstance(length, DTensor) else length
        if most is not None:
            torch.nn.utils.clip_grads_with_norm_(list(self.named.values()), most, length, foreach=True)
        return length

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over whole tensors, whatever number of processes saved them."""
        cut: dict[str, Tensor] = {}
        for key, tensor in state.items():
            weight = self.named.get(_owner(key))
            cut[key] = tensor if weight is None else like(weight, tensor)
        super().restore(cut)


def _owner(key: str) -> str:
    """The name of the weight that a remembered tensor has the shape of: `adam.exp_avg.head.weight`."""
    for start in ("muon.", "adam.exp_avg_sq.", "adam.exp_avg."):
        if key.startswith(start):
            return key.removeprefix(start)
    return ""


class ShardedMuon:
    """Momentum in shards. For its step each matrix is made whole, on every process alike, one after the other."""

    def __init__(self, matrices: Mapping[str, DTensor], recipe: Muon, dtype: torch.dtype) -> None:
        self.matrices, self.recipe, self.dtype = matrices, recipe, dtype
        self.momentum = {name: torch.zeros_like(matrix) for name, matrix in matrices.items()}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Move every matrix by its gradient."""
        for name, matrix in self.matrices.items():
            if matrix.grad is None:
                continue
            self.momentum[name].lerp_(matrix.grad, 1 - self.recipe.momentum)
            whole = cast(DTensor, matrix.grad.lerp(self.momentum[name], self.recipe.momentum)).full_tensor()
            rows, columns = whole.shape
            lying = whole if rows <= columns else whole.mT
            way = orthogonalise(lying[None], self.recipe.iterations, self.dtype)[0].to(whole.dtype)
            rate = lr * max(1.0, rows / columns) ** 0.5
            matrix.mul_(1 - lr * self.recipe.decay)
            matrix.sub_(like(matrix, way if rows <= columns else way.mT), alpha=rate)

    def state(self) -> dict[str, Tensor]:
        """The momentum of each matrix."""
        return dict(self.momentum)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take the momentum over."""
        for name, held in self.momentum.items():
            held.copy_(state[name])


def like(weight: Tensor, whole: Tensor) -> Tensor:
    """This process's part of a whole tensor, cut as `weight` is; nothing is sent."""
    if not isinstance(weight, DTensor):
        return whole
    there = whole.to(weight.device).contiguous()
    return distribute_tensor(there, weight.device_mesh, weight.placements, src_data_rank=None)


def gather(model: Model, *, keep: bool) -> Model | None:
    """The whole model, on the processor, for those who `keep` it; everybody must ask."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            tensors[name] = whole.detach().cpu()
    return assemble(model, tensors) if keep else None


def assemble(model: Model, tensors: Mapping[str, Tensor]) -> Model:
    """A model of the same settings over these tensors."""
    twin = build(model.config, seed=None)
    twin.load_state_dict(dict(tensors), strict=True, assign=True)
    return twin.eval()


class WholeState:
    """What an optimizer remembers, made whole: all that saving asks of one."""

    def __init__(self, held: Mapping[str, Tensor]) -> None:
        self.held = dict(held)

    def state(self) -> dict[str, Tensor]:
        """Everything by name."""
        return self.held


def consolidate(folder: Path, model: Model, optimizer: Optimizer, *, lead: bool) -> tuple[Model, WholeState] | None:
    """Every process writes its shards (DCP, safetensors); the lead gets them back as whole tensors.

    `folder` is seen by all processes, and gone afterwards.
    """
    held = {f"weights.{name}": tensor for name, tensor in model.state_dict().items()}
    held |= {f"state.{name}": tensor for name, tensor in optimizer.state().items()}
    # Single numbers, which all processes share, come back from torch's consolidation as 0: they stay here.
    numbers = {name: held.pop(name) for name in [name for name, tensor in held.items() if not tensor.ndim]}
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True, enable_consolidation=True)
    try:
        dcp.save(held, storage_writer=writer)
    except dcp.api.CheckpointException as error:
        raise NoRoom(f"The shards of {folder} cannot be written: {_cause(error)}.") from error
    if not lead:
        return None
    files = sorted(folder.glob("model-*.safetensors"))
    if not files:
        raise InvalidInput(f"{folder} holds no shards.")
    whole = numbers | {name: tensor.clone() for file in files for name, tensor in load_file(file).items()}
    shutil.rmtree(folder, ignore_errors=True)
    twin = assemble(model, {k.removeprefix("weights."): v for k, v in whole.items() if k.startswith("weights.")})
    return twin, WholeState({k.removeprefix("state."): v for k, v in whole.items() if k.startswith("state.")})


def _cause(error: dcp.api.CheckpointException) -> str:
    found = next(iter(error.failures.values()), None)
    return str(found[0] if found else error)[:200]
