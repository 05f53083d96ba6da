"""Optimizers: AdamW for all weights, or Muon for linear layers with AdamW for the rest."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, cast

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.parameters import BoundedSettings


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


_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the polynomial a·x + b·x³ + c·x⁵ that pushes singular values towards 1, steep at 0."""

_EPS = 1e-7
_GRAM_ASPECT_RATIO = 2
"""From this aspect ratio on, iterating on the Gram matrix is cheaper."""


def orthogonalise(matrices: Tensor, ns_steps: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    """Push the singular values of matrices towards 1 by Newton-Schulz; `[n, rows, columns]`, rows <= columns.

    >>> orthogonal = orthogonalise(torch.tensor([[[3.0, 0.0], [0.0, 0.2]]]))
    >>> bool((torch.linalg.svdvals(orthogonal) - 1).abs().max() < 0.4)
    True
    """
    a, b, c = _COEFFICIENTS
    x = matrices.to(dtype)
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=_EPS)
    if x.shape[-1] >= _GRAM_ASPECT_RATIO * x.shape[-2] and dtype in (torch.float32, torch.float64):
        return torch.matmul(_gram_newton_schulz(x @ x.mT, ns_steps), x)
    for _ in range(ns_steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _gram_newton_schulz(gram: Tensor, ns_steps: int) -> Tensor:
    """Return the product of all iterations' factors, computed from the Gram matrix x xᵀ alone.

    A wide x is then multiplied twice instead of in every iteration: x' = q x with q = a + b g + c g² and g = x xᵀ, and
    then g' = q g q. In 16 bits g would be too coarse.
    """
    a, b, c = _COEFFICIENTS
    product = None
    for iteration in range(ns_steps):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        product = factor if product is None else factor @ product
        if iteration + 1 < ns_steps:
            gram = factor @ gram @ factor
    assert product is not None, "at least one iteration"
    return product


class MuonOptimizer:
    """Muon updates of a set of matrices, with their momentum; matrices of one shape are updated together."""

    def __init__(self, matrices: Mapping[str, Tensor], config: MuonConfig, dtype: torch.dtype) -> None:
        self.config, self.dtype = config, dtype
        by_shape: dict[tuple[int, int], dict[str, Tensor]] = {}
        for name, matrix in matrices.items():
            rows, columns = matrix.shape
            by_shape.setdefault((min(rows, columns), max(rows, columns)), {})[name] = matrix
        self._groups = [_ShapeGroup(group, shape) for shape, group in by_shape.items()]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update every matrix."""
        for group in self._groups:
            gradient = group.gradients()
            group.momentum.lerp_(gradient, 1 - self.config.momentum)
            update = gradient.lerp_(group.momentum, self.config.momentum)
            update = orthogonalise(update, self.config.ns_steps, self.dtype).to(gradient.dtype)
            group.apply_update(update, lr, self.config.weight_decay)

    def state_dict(self) -> dict[str, Tensor]:
        """Return views of the momentum of each matrix, in the matrix's own orientation."""
        views: dict[str, Tensor] = {}
        for group in self._groups:
            momenta = list(group.momentum.unbind())
            views |= zip(group.wide, momenta[: len(group.wide)], strict=True)
            views |= zip(group.tall, [momentum.mT for momentum in momenta[len(group.wide) :]], strict=True)
        return views

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the momentum from a saved state."""
        for name, momentum in self.state_dict().items():
            momentum.copy_(state[name])


class _ShapeGroup:
    """Matrices of one shape, wide ones first, tall ones transposed; their momentum is one tensor."""

    def __init__(self, matrices: Mapping[str, Tensor], shape: tuple[int, int]) -> None:
        self.wide = {name: matrix for name, matrix in matrices.items() if matrix.shape == shape}
        self.tall = {name: matrix for name, matrix in matrices.items() if matrix.shape != shape}
        self.shape = shape
        self.momentum = torch.zeros(len(matrices), *shape, device=next(iter(matrices.values())).device)

    def gradients(self) -> Tensor:
        """Stack all gradients in wide orientation into a new tensor."""
        weights = [*self.wide.values(), *self.tall.values()]
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        return torch.stack(gradients[: len(self.wide)] + [gradient.mT for gradient in gradients[len(self.wide) :]])

    def apply_update(self, update: Tensor, lr: float, weight_decay: float) -> None:
        """Apply weight decay, then the update; tall matrices are scaled by the root of their aspect ratio."""
        updates = list(update.unbind())
        num_wide, ratio = len(self.wide), (self.shape[1] / self.shape[0]) ** 0.5
        pairs = ((self.wide, updates[:num_wide], lr), (self.tall, [d.mT for d in updates[num_wide:]], lr * ratio))
        for matrices, group_updates, group_lr in pairs:
            if matrices:
                weights = list(matrices.values())
                torch._foreach_mul_(weights, 1 - lr * weight_decay)
                torch._foreach_add_(weights, group_updates, alpha=-group_lr)


class Optimizer:
    """Optimizer of a model, with a state that is saved and restored by parameter name."""

    def __init__(self, model: nn.Module, config: OptimizerConfig, *, bfloat16: bool = False) -> None:
        self.config = config
        self.params = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        matrices = linear_weights(model) if isinstance(config, MuonConfig) else {}
        self._muon: MuonOptimizer | None = None
        if isinstance(config, MuonConfig) and matrices:
            self._muon = MuonOptimizer(matrices, config, torch.bfloat16 if bfloat16 else torch.float32)
        self._adamw_config = config.adamw if isinstance(config, MuonConfig) else config
        self._adamw_params = {name: weight for name, weight in self.params.items() if name not in matrices}
        given, decayed, others = self._adamw_config, list[Tensor](), list[Tensor]()
        for name, weight in self._adamw_params.items():
            (decayed if weight.ndim > 1 and "embedding" not in name else others).append(weight)
        groups = [{"params": decayed, "weight_decay": given.weight_decay}, {"params": others, "weight_decay": 0.0}]
        fused = all(weight.device.type in ("cpu", "cuda") for weight in self._adamw_params.values())
        self._adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=given.lr, betas=(given.beta1, given.beta2), eps=given.eps, fused=fused,
        )  # fmt: skip

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

    def grad_norm(self) -> Tensor:
        """Return the global gradient norm."""
        gradients = [weight.grad for weight in self.params.values() if weight.grad is not None]
        return torch.nn.utils.get_total_norm(gradients, foreach=True)

    def clip_grad_norm(self, max_norm: float | None) -> Tensor:
        """Clip the global gradient norm to `max_norm`; return the norm before clipping."""
        norm = self.grad_norm()
        if max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(list(self.params.values()), max_norm, norm, foreach=True)
        return norm

    def state_dict(self) -> dict[str, Tensor]:
        """Return all optimizer state by name."""
        state = {f"muon.{name}": momentum for name, momentum in (self._muon.state_dict() if self._muon else {}).items()}
        for name, weight in self._adamw_params.items():
            slots: Mapping[str, Tensor] = self._adamw.state.get(weight, {})
            state |= {f"adam.{slot}.{name}": value for slot, value in slots.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load a state returned by `state_dict`; tensors are copied, so that the file may be deleted."""
        try:
            if self._muon is not None:
                self._muon.load_state_dict({name: state[f"muon.{name}"] for name in self._muon.state_dict()})
            for name, weight in self._adamw_params.items():
                slots = [slot for slot in ("step", "exp_avg", "exp_avg_sq") if f"adam.{slot}.{name}" in state]
                if slots:
                    self._adamw.state[weight] = {slot: state[f"adam.{slot}.{name}"].clone() for slot in slots}
        except KeyError as error:
            message = f"The saved optimizer state has nothing for {error}."
            raise InvalidInput(message, hint="Was the recipe changed?") from None


def linear_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights of the linear layers by name: the parameters that Muon updates."""
    return {
        f"{name}.weight": cast(nn.Parameter, module.weight)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.weight.requires_grad and min(module.weight.shape) > 1
    }
