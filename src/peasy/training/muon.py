"""Muon optimizer: momentum orthogonalized by Newton-Schulz iterations.

Matrices of one shape are stacked into one batch of products. A tall matrix is transposed, which gives the same
result with less work.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

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
    """Muon updates of a set of matrices, with their momentum."""

    def __init__(
        self,
        matrices: Mapping[str, nn.Parameter],
        *,
        momentum: float,
        weight_decay: float,
        ns_steps: int,
        dtype: torch.dtype,
    ) -> None:
        self.momentum, self.weight_decay, self.ns_steps, self.dtype = momentum, weight_decay, ns_steps, dtype
        shapes: dict[tuple[int, int], list[str]] = {}
        for name, matrix in matrices.items():
            rows, columns = matrix.shape
            shapes.setdefault((min(rows, columns), max(rows, columns)), []).append(name)
        self._groups = [
            _ShapeGroup([(name, matrices[name]) for name in names], shape) for shape, names in shapes.items()
        ]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update every matrix."""
        for group in self._groups:
            gradient = group.gradients()
            group.momentum.lerp_(gradient, 1 - self.momentum)
            update = orthogonalise(gradient.lerp_(group.momentum, self.momentum), self.ns_steps, self.dtype)
            group.apply_update(update.to(gradient.dtype), lr, self.weight_decay)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the momentum of each matrix, in the matrix's own orientation."""
        return {name: momentum for group in self._groups for name, momentum in group.momentum_views().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the momentum from a saved state."""
        for group in self._groups:
            for name, momentum in group.momentum_views().items():
                momentum.copy_(state[name])


class _ShapeGroup:
    """Matrices of one shape, wide ones first, tall ones transposed; their momentum is one tensor."""

    def __init__(self, params: list[tuple[str, nn.Parameter]], shape: tuple[int, int]) -> None:
        wide = [(name, matrix) for name, matrix in params if matrix.shape == shape]
        tall = [(name, matrix) for name, matrix in params if matrix.shape != shape]
        self.names = [name for name, _ in wide + tall]
        self.wide: list[Tensor] = [matrix for _, matrix in wide]
        self.tall: list[Tensor] = [matrix for _, matrix in tall]
        self.shape = shape
        self.momentum = torch.zeros(len(params), *shape, device=params[0][1].device)

    def gradients(self) -> Tensor:
        """Stack all gradients in wide orientation into a new tensor."""
        gradients = [self._gradient(matrix) for matrix in self.wide] + [self._gradient(m).mT for m in self.tall]
        return torch.stack(gradients)

    def _gradient(self, matrix: Tensor) -> Tensor:
        return torch.zeros_like(matrix) if matrix.grad is None else matrix.grad

    def apply_update(self, update: Tensor, lr: float, weight_decay: float) -> None:
        """Apply weight decay, then the update; tall matrices are scaled by the root of their aspect ratio."""
        updates = list(update.unbind())
        num_wide, ratio = len(self.wide), (self.shape[1] / self.shape[0]) ** 0.5
        pairs = ((self.wide, updates[:num_wide], lr), (self.tall, [d.mT for d in updates[num_wide:]], lr * ratio))
        for matrices, group_updates, group_lr in pairs:
            if matrices:
                torch._foreach_mul_(matrices, 1 - lr * weight_decay)
                torch._foreach_add_(matrices, group_updates, alpha=-group_lr)

    def momentum_views(self) -> dict[str, Tensor]:
        """Return views of the momentum by name, in the orientation of each matrix."""
        momenta = list(self.momentum.unbind())
        num_wide = len(self.wide)
        return dict(zip(self.names, momenta[:num_wide] + [momentum.mT for momentum in momenta[num_wide:]], strict=True))
