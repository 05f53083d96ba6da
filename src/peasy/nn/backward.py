"""The way back, written by hand where torch's own is slow: for learning on a processor, and nothing else.

Each function here gives the numbers of the plain form beside it, to rounding, for less memory traffic; who is only
asked (no gradient), watched at work by a compiler or exported takes the plain form. Attention is not among them: over
64 to 256 tokens plain products with kept weights were no faster than the fused kernel.
"""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional


def learns(*arrays: Tensor) -> bool:
    """Whether a gradient will be asked for, step by step on a processor."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return all(array.device.type == "cpu" for array in arrays) and any(array.requires_grad for array in arrays)


class ReluSquared(Function):
    """x² above zero. What is kept is max(x, 0): the slope is twice that, without asking again where zero was."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """The squares."""
        above = functional.relu(x)
        ctx.save_for_backward(above)
        return above * above

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """2 max(x, 0) times what comes back."""
        (above,) = ctx.saved_tensors
        return (gradient * above).mul_(2)


class RootNormed(Function):
    """x over the root of its mean square, times a weight; what is kept is x at its new size."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:  # type: ignore[no-untyped-def]
        """The normed vectors."""
        mean = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        factor = mean.add_(epsilon).rsqrt_()
        normed = x * factor
        ctx.save_for_backward(normed, factor, weight)
        return normed * weight

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        """What points along x is taken out: it would only change the size, which is fixed."""
        normed, factor, weight = ctx.saved_tensors
        each = (gradient * normed).flatten(0, -2)
        along = torch.mv(each, weight).view(factor.shape).div_(-normed.shape[-1])
        return torch.mul(gradient, weight).addcmul_(normed, along).mul_(factor), each.sum(0), None


class Turned(Function):
    """Pairs turned by their angles; the way back turns them the other way, and keeps nothing but the angles."""

    @staticmethod
    def forward(ctx, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """The turned pairs, heads side by side in memory."""
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        """The same angles backwards."""
        cos, sin = ctx.saved_tensors
        return _turn(gradient, cos, -sin), None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    found = x.new_empty(x.shape)
    first, second = found.chunk(2, dim=-1)
    torch.mul(left, cos, out=first).addcmul_(right, sin, value=-1)
    torch.mul(right, cos, out=second).addcmul_(left, sin)
    return found


class Shifted(Function):
    """The first half of each vector comes from the token before, of the first token it is 0; `[batch, time, width]`."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """One copy, half of it a place later."""
        found = x.new_empty(x.shape)
        half = x.shape[-1] // 2
        found[..., half:] = x[..., half:]
        found[:, 1:, :half] = x[:, :-1, :half]
        found[:, 0, :half] = 0
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """The same, a place earlier."""
        back = gradient.new_empty(gradient.shape)
        half = gradient.shape[-1] // 2
        back[..., half:] = gradient[..., half:]
        back[:, :-1, :half] = gradient[:, 1:, :half]
        back[:, -1, :half] = 0
        return back
