"""Optimizers: AdamW for all weights, or Muon for linear layers with AdamW for the rest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.parameters import BoundedSettings
from peasy.training.muon import MuonOptimizer


@dataclass(frozen=True)
class AdamWConfig(BoundedSettings):
    """AdamW settings; weight decay applies to matrices other than embeddings."""

    kind: ClassVar[str] = "adamw"
    lr: Annotated[float, Ge(0)] = 3e-3
    """Peak learning rate."""
    weight_decay: Annotated[float, Ge(0)] = 0.1
    """Weight decay of matrices other than embeddings, as a multiple of the learning rate."""
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Decay rate of the mean of the gradient, below 1."""
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.95
    """Decay rate of the mean of the squared gradient, below 1."""
    eps: Annotated[float, Ge(0)] = 1e-8
    """Added to the denominator of the update."""


@dataclass(frozen=True)
class MuonConfig(BoundedSettings):
    """Muon settings: orthogonalized momentum for linear weights; `adamw` for embeddings, heads, norms and biases."""

    kind: ClassVar[str] = "muon"
    lr: Annotated[float, Ge(0)] = 0.02
    """Peak learning rate of linear weights."""
    weight_decay: Annotated[float, Ge(0)] = 0.01
    """Weight decay of linear weights, as a multiple of the learning rate."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.95
    """Momentum, below 1."""
    ns_steps: Annotated[int, Ge(1)] = 5
    """Newton-Schulz iterations per update."""
    adamw: AdamWConfig = AdamWConfig(lr=6e-3)
    """AdamW for embeddings, output heads, norms and biases."""


OptimizerConfig = AdamWConfig | MuonConfig


class Optimizer:
    """Optimizer of a model, with a state that is saved and restored by parameter name."""

    def __init__(self, model: nn.Module, config: OptimizerConfig, *, bfloat16: bool = False) -> None:
        self.config = config
        self.params = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        matrices = linear_weights(model) if isinstance(config, MuonConfig) else {}
        self._muon: MuonOptimizer | None = None
        if isinstance(config, MuonConfig) and matrices:
            self._muon = MuonOptimizer(
                matrices,
                momentum=config.momentum,
                weight_decay=config.weight_decay,
                ns_steps=config.ns_steps,
                dtype=torch.bfloat16 if bfloat16 else torch.float32,
            )
        self._adamw_config = config.adamw if isinstance(config, MuonConfig) else config
        self._adamw = _make_adamw(
            {name: w for name, w in self.params.items() if name not in matrices}, self._adamw_config
        )
        self._adamw_names = {name for name in self.params if name not in matrices}

    def step(self, lr_scale: float) -> None:
        """Update the weights; `lr_scale` multiplies the learning rates."""
        for group in self._adamw.param_groups:
            group["lr"] = self._adamw_config.lr * lr_scale
        self._adamw.step()
        if self._muon is not None:
            self._muon.step(self.config.lr * lr_scale)

    def zero_grad(self) -> None:
        """Zero all gradients."""
        for weight in self.params.values():
            weight.grad = None

    def clip_grad_norm(self, max_norm: float | None) -> Tensor:
        """Clip the global gradient norm to `max_norm`; return the norm before clipping."""
        gradients = [weight.grad for weight in self.params.values() if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
        if max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(list(self.params.values()), max_norm, norm, foreach=True)
        return norm

    def state_dict(self) -> dict[str, Tensor]:
        """Return all optimizer state by name."""
        state = {f"muon.{name}": momentum for name, momentum in (self._muon.state_dict() if self._muon else {}).items()}
        for name in self._adamw_names:
            slots: dict[str, Any] = self._adamw.state.get(self.params[name], {})
            state |= {f"adam.{slot}.{name}": value for slot, value in slots.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load a state returned by `state_dict`; tensors are copied, so that the file may be deleted."""
        try:
            if self._muon is not None:
                self._muon.load_state_dict({name: state[f"muon.{name}"] for name in self._muon.state_dict()})
            for name in self._adamw_names:
                slots = [slot for slot in _ADAMW_SLOTS if f"adam.{slot}.{name}" in state]
                values = {slot: state[f"adam.{slot}.{name}"].clone() for slot in slots}
                if values:
                    self._adamw.state[self.params[name]] = values
        except KeyError as error:
            raise InvalidInput(
                f"The saved optimizer state has nothing for {error}.", hint="Was the recipe changed?"
            ) from None


_ADAMW_SLOTS = ("step", "exp_avg", "exp_avg_sq")


def linear_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights of the linear layers by name: the parameters that Muon updates."""
    return {
        f"{name}.weight": cast(nn.Parameter, module.weight)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.weight.requires_grad and min(module.weight.shape) > 1
    }


def _make_adamw(params: Mapping[str, nn.Parameter], config: AdamWConfig) -> torch.optim.AdamW:
    decayed = [weight for name, weight in params.items() if weight.ndim > 1 and "embedding" not in name]
    not_decayed = [weight for name, weight in params.items() if weight.ndim <= 1 or "embedding" in name]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": not_decayed, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=all(weight.device.type in ("cpu", "cuda") for weight in params.values()),
    )
