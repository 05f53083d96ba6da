"""Optimizers: AdamW for everything, or Muon for the matrices inside blocks with AdamW for the rest."""

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
    """Each number moves by its own running mean and spread; matrices are pulled towards 0 by `decay`."""

    kind: ClassVar[str] = "adamw"
    lr: float = 3e-3
    decay: float = 0.1
    first: float = 0.9
    second: float = 0.95
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check(self, lr=0, decay=0, first=0, second=0, epsilon=0)
        if self.first >= 1 or self.second >= 1:
            raise InvalidInput("first and second are shares of the past.", hint="They must be below 1.")


@dataclass(frozen=True)
class Muon:
    """Matrices of linear maps move by orthogonal steps; embeddings, heads, norms and biases by `rest`."""

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
    """Moves the weights of a model; all it remembers can be saved by name and taken back."""

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
        """Move by the gradients, at this share of the full rate."""
        for group in self._adam.param_groups:
            group["lr"] = self._adam_recipe.lr * factor
        self._adam.step()
        if self._muon is not None:
            self._muon.step(self.recipe.lr * factor)

    def forget_gradients(self) -> None:
        """Before the next step: gradients are sums."""
        for weight in self.named.values():
            weight.grad = None

    def clip(self, most: float | None) -> Tensor:
        """Shorten all gradients together to the length `most`; tells how long they were."""
        gradients = [weight.grad for weight in self.named.values() if weight.grad is not None]
        length = torch.nn.utils.get_total_norm(gradients, foreach=True)
        if most is not None:
            torch.nn.utils.clip_grads_with_norm_(list(self.named.values()), most, length, foreach=True)
        return length

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on."""
        found = {f"muon.{name}": held for name, held in (self._muon.state() if self._muon else {}).items()}
        for name in self._moved:
            held: dict[str, Any] = self._adam.state.get(self.named[name], {})
            found |= {f"adam.{part}.{name}": value for part, value in held.items()}
        return found

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` gave; copies, so that the file may go."""
        try:
            if self._muon is not None:
                self._muon.restore({name: state[f"muon.{name}"] for name in self._muon.state()})
            for name in self._moved:
                keys = [part for part in _ADAM_PARTS if f"adam.{part}.{name}" in state]
                held = {part: state[f"adam.{part}.{name}"].clone() for part in keys}
                if held:
                    self._adam.state[self.named[name]] = held
        except KeyError as error:
            raise InvalidInput(
                f"The saved optimizer has nothing for {error}.", hint="Was the recipe changed?"
            ) from None


_ADAM_PARTS = ("step", "exp_avg", "exp_avg_sq")


def linear_matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights of the linear maps inside a model, by name: what Muon is for."""
    return {
        f"{name}.weight": cast(nn.Parameter, module.weight)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.weight.requires_grad and min(module.weight.shape) > 1
    }


def _adam(named: Mapping[str, nn.Parameter], recipe: AdamW) -> torch.optim.AdamW:
    pulled = [weight for name, weight in named.items() if weight.ndim > 1 and "embedding" not in name]
    free = [weight for name, weight in named.items() if weight.ndim <= 1 or "embedding" in name]
    groups = [{"params": pulled, "weight_decay": recipe.decay}, {"params": free, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=recipe.lr,
        betas=(recipe.first, recipe.second),
        eps=recipe.epsilon,
        fused=all(weight.device.type in ("cpu", "cuda") for weight in named.values()),
    )
