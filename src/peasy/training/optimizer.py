"""Optimizers: AdamW for all weights, or Muon for linear layers with AdamW for the rest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.nn.part import check
from peasy.training.muon import MuonSteps


@dataclass(frozen=True)
class AdamW:
    """AdamW settings; weight decay applies to matrices other than embeddings."""

    kind: ClassVar[str] = "adamw"
    lr: float = 3e-3
    decay: float = 0.1
    first: float = 0.9
    second: float = 0.95
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check(self, lr=0, decay=0, first=0, second=0, epsilon=0)
        if self.first >= 1 or self.second >= 1:
            raise InvalidInput("beta1 and beta2 must be below 1.", hint="For example 0.9 and 0.95.")


@dataclass(frozen=True)
class Muon:
    """Muon settings: orthogonalized momentum for linear weights; `adamw` for embeddings, heads, norms and biases."""

    kind: ClassVar[str] = "muon"
    lr: float = 0.02
    decay: float = 0.01
    momentum: float = 0.95
    iterations: int = 5
    rest: AdamW = AdamW(lr=6e-3)

    def __post_init__(self) -> None:
        check(self, lr=0, decay=0, momentum=0, iterations=1)
        if self.momentum >= 1:
            raise InvalidInput(f"momentum is {self.momentum}.", hint="momentum must be below 1.")


OptimizerRecipe = AdamW | Muon


class Optimizer:
    """Optimizer of a model, with a state that is saved and restored by parameter name."""

    def __init__(self, model: nn.Module, recipe: OptimizerRecipe, *, bfloat16: bool = False) -> None:
        self.recipe = recipe
        self.named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        matrices = linear_matrices(model) if isinstance(recipe, Muon) else {}
        self._muon: MuonSteps | None = None
        if isinstance(recipe, Muon) and matrices:
            self._muon = MuonSteps(
                matrices,
                momentum=recipe.momentum,
                decay=recipe.decay,
                iterations=recipe.iterations,
                dtype=torch.bfloat16 if bfloat16 else torch.float32,
            )
        self._adam_recipe = recipe.rest if isinstance(recipe, Muon) else recipe
        self._adam = _adam({name: w for name, w in self.named.items() if name not in matrices}, self._adam_recipe)
        self._moved = {name for name in self.named if name not in matrices}

    def step(self, factor: float) -> None:
        """Update the weights; `lr_scale` multiplies the learning rates."""
        for group in self._adam.param_groups:
            group["lr"] = self._adam_recipe.lr * factor
        self._adam.step()
        if self._muon is not None:
            self._muon.step(self.recipe.lr * factor)

    def forget_gradients(self) -> None:
        """Zero all gradients."""
        for weight in self.named.values():
            weight.grad = None

    def clip(self, most: float | None) -> Tensor:
        """Clip the global gradient norm to `max_norm`; return the norm before clipping."""
        gradients = [weight.grad for weight in self.named.values() if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
        if most is not None:
            torch.nn.utils.clip_grads_with_norm_(list(self.named.values()), most, norm, foreach=True)
        return norm

    def state(self) -> dict[str, Tensor]:
        """Return all optimizer state by name."""
        state = {f"muon.{name}": momentum for name, momentum in (self._muon.state() if self._muon else {}).items()}
        for name in self._moved:
            slots: dict[str, Any] = self._adam.state.get(self.named[name], {})
            state |= {f"adam.{slot}.{name}": value for slot, value in slots.items()}
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Load a state returned by `state`; tensors are copied, so that the file may be deleted."""
        try:
            if self._muon is not None:
                self._muon.restore({name: state[f"muon.{name}"] for name in self._muon.state()})
            for name in self._moved:
                slots = [slot for slot in _ADAM_PARTS if f"adam.{slot}.{name}" in state]
                values = {slot: state[f"adam.{slot}.{name}"].clone() for slot in slots}
                if values:
                    self._adam.state[self.named[name]] = values
        except KeyError as error:
            raise InvalidInput(
                f"The saved optimizer state has nothing for {error}.", hint="Was the recipe changed?"
            ) from None


_ADAM_PARTS = ("step", "exp_avg", "exp_avg_sq")


def linear_matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights of the linear layers by name: the parameters that Muon updates."""
    return {
        f"{name}.weight": cast(nn.Parameter, module.weight)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.weight.requires_grad and min(module.weight.shape) > 1
    }


def _adam(named: Mapping[str, nn.Parameter], recipe: AdamW) -> torch.optim.AdamW:
    decayed = [weight for name, weight in named.items() if weight.ndim > 1 and "embedding" not in name]
    not_decayed = [weight for name, weight in named.items() if weight.ndim <= 1 or "embedding" in name]
    groups = [{"params": decayed, "weight_decay": recipe.decay}, {"params": not_decayed, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=recipe.lr,
        betas=(recipe.first, recipe.second),
        eps=recipe.epsilon,
        fused=all(weight.device.type in ("cpu", "cuda") for weight in named.values()),
    )
