"""The way back, written by hand where torch's own is slow: for learning on a processor, and nothing else.

Each function here gives the numbers of the plain form beside it, to rounding, for less memory traffic; who is only
asked (no gradient), watched at work by a compiler or exported takes the plain form.
"""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

LONGEST = 64
"""Up to so many tokens whole scores fit into the processor's own memory, and plain products beat the fused kernel."""


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


class ShortAttention(Function):
    """Causal attention over a short text by plain products; the weights are kept for the way back.

    Arrays are `[batch, head, time, d_head]`.
    """

    @staticmethod
    def forward(ctx, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:  # type: ignore[no-untyped-def]
        """The context of every query."""
        flat = [array.flatten(0, 1).contiguous() for array in (query, key, value)]
        later = query.new_full((query.shape[2],) * 2, -torch.inf).triu(1)
        weights = torch.softmax(torch.baddbmm(later, flat[0], flat[1].mT, alpha=scale), dim=-1)
        ctx.save_for_backward(*flat, weights)
        ctx.scale = scale
        return torch.bmm(weights, flat[2]).view(value.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        """Through the weighted sum, the softmax and the products."""
        query, key, value, weights = ctx.saved_tensors
        shape, gradient = gradient.shape, gradient.flatten(0, 1).contiguous()
        moved = torch.bmm(gradient, value.mT)
        scores = torch._softmax_backward_data(moved, weights, -1, weights.dtype).mul_(ctx.scale)
        back = torch.bmm(scores, key), torch.bmm(scores.mT, query), torch.bmm(weights.mT, gradient)
        return back[0].view(shape), back[1].view(shape), back[2].view(shape), None


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
