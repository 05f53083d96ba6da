"""Muon: momentum made orthogonal, so that a step moves every direction of a matrix alike.

Matrices of one shape are treated together: one batch of products instead of many small ones. A tall matrix is
treated lying down, which gives the same result for less work.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the odd polynomial a·x + b·x³ + c·x⁵ that pulls singular values towards 1, steeply at 0."""

_TINY = 1e-7
_LONG = 2
"""From this proportion on, few products of squares are cheaper than many of long matrices."""


def orthogonalise(matrices: Tensor, iterations: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    """The nearest matrices with singular values near 1, by Newton-Schulz; `[n, rows, columns]`, rows <= columns.

    >>> found = orthogonalise(torch.tensor([[[3.0, 0.0], [0.0, 0.2]]]))
    >>> bool((torch.linalg.svdvals(found) - 1).abs().max() < 0.4)
    True
    """
    a, b, c = COEFFICIENTS
    x = matrices.to(dtype)
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=_TINY)
    if x.shape[-1] >= _LONG * x.shape[-2] and dtype in (torch.float32, torch.float64):
        return _gather(x @ x.mT, iterations) @ x
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _gather(gram: Tensor, iterations: int) -> Tensor:
    """The product of all steps' factors, from x xᵀ alone: a long x is then multiplied twice instead of every time.

    A step is x' = q x with q = a + b g + c g², where g = x xᵀ, and then g' = q g q. In 16 bits g would be too coarse.
    """
    a, b, c = COEFFICIENTS
    found = None
    for step in range(iterations):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        found = factor if found is None else factor @ found
        if step + 1 < iterations:
            gram = factor @ gram @ factor
    assert found is not None, "at least one step"
    return found


class MuonSteps:
    """Keeps the momentum of some matrices and moves them."""

    def __init__(
        self,
        matrices: Mapping[str, nn.Parameter],
        *,
        momentum: float,
        decay: float,
        iterations: int,
        dtype: torch.dtype,
    ) -> None:
        self.momentum, self.decay, self.iterations, self.dtype = momentum, decay, iterations, dtype
        shapes: dict[tuple[int, int], list[str]] = {}
        for name, matrix in matrices.items():
            rows, columns = matrix.shape
            shapes.setdefault((min(rows, columns), max(rows, columns)), []).append(name)
        self._groups = [_Group([(name, matrices[name]) for name in names], shape) for shape, names in shapes.items()]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Move every matrix by its gradient."""
        for group in self._groups:
            gradient = group.gradients()
            group.momentum.lerp_(gradient, 1 - self.momentum)
            found = orthogonalise(gradient.lerp_(group.momentum, self.momentum), self.iterations, self.dtype)
            group.move(found.to(gradient.dtype), lr, self.decay)

    def state(self) -> dict[str, Tensor]:
        """The momentum of each matrix, in the matrix's own orientation."""
        return {name: held for group in self._groups for name, held in group.held().items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take the momentum over from a saved state."""
        for group in self._groups:
            for name, held in group.held().items():
                held.copy_(state[name])


class _Group:
    """Matrices of one shape, those that stand upright first; their momentum is one array."""

    def __init__(self, named: list[tuple[str, nn.Parameter]], shape: tuple[int, int]) -> None:
        lying = [(name, matrix) for name, matrix in named if matrix.shape == shape]
        tall = [(name, matrix) for name, matrix in named if matrix.shape != shape]
        self.names = [name for name, _ in lying + tall]
        self.lying: list[Tensor] = [matrix for _, matrix in lying]
        self.tall: list[Tensor] = [matrix for _, matrix in tall]
        self.shape = shape
        self.momentum = torch.zeros(len(named), *shape, device=named[0][1].device)

    def gradients(self) -> Tensor:
        """All gradients lying down, as one new array."""
        found = [self._gradient(matrix) for matrix in self.lying] + [self._gradient(m).mT for m in self.tall]
        return torch.stack(found)

    def _gradient(self, matrix: Tensor) -> Tensor:
        return torch.zeros_like(matrix) if matrix.grad is None else matrix.grad

    def move(self, found: Tensor, lr: float, decay: float) -> None:
        """Shrink by `decay`, then move; tall matrices move further by the root of their proportions."""
        directions = list(found.unbind())
        cut, ratio = len(self.lying), (self.shape[1] / self.shape[0]) ** 0.5
        pairs = ((self.lying, directions[:cut], lr), (self.tall, [d.mT for d in directions[cut:]], lr * ratio))
        for matrices, ways, rate in pairs:
            if matrices:
                torch._foreach_mul_(matrices, 1 - lr * decay)
                torch._foreach_add_(matrices, ways, alpha=-rate)

    def held(self) -> dict[str, Tensor]:
        """Views of the momentum by name, each as its matrix stands."""
        rows = list(self.momentum.unbind())
        cut = len(self.lying)
        return dict(zip(self.names, rows[:cut] + [row.mT for row in rows[cut:]], strict=True))
