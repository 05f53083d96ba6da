"""Layer norm and RMSNorm, batch-invariant elementwise functions, custom autograd functions (relu², RoPE, ...).

The autograd functions are for training on CPU: each gives the same result as the plain code next to its call, up to
rounding, with less memory traffic. Inference, compilation and export use the plain code. There is none for attention:
for 64 to 256 tokens, explicit products with stored weights were no faster than the fused kernel.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from peasy.nn import config as nn_config

_SIMD_MULTIPLE = 64
"""At least the SIMD width of any CPU: an array whose size is a multiple of it has no remainder."""

MAX_UNTHREADED = 32_768
"""Torch splits longer arrays between threads."""


_BFLOAT16_CHECKS = (getattr(torch.cpu, name, bool) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
HAS_BFLOAT16: bool = any(check() for check in _BFLOAT16_CHECKS) and (
    not torch.backends.mkldnn.is_available() or torch.ops.mkldnn._is_mkldnn_bf16_supported()
)
"""Whether this CPU has bfloat16 instructions, and oneDNN may use them (ONEDNN_MAX_CPU_ISA can forbid it)."""


def batch_invariant(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return `function(x)` for an elementwise function, with bits that do not depend on an element's position.

    Torch computes most of an array with SIMD vectors and the remainder with a scalar routine, and splits long arrays
    between threads. An exponential in such a remainder may differ in its last bit.

    >>> x = torch.randn(3, 21)
    >>> torch.equal(batch_invariant(torch.tanh, x)[1:], batch_invariant(torch.tanh, x[1:]))
    True
    """
    if torch.compiler.is_compiling():  # an exported graph has no threads, and its sizes are symbolic
        return function(x)
    count = x.numel()
    if count % _SIMD_MULTIPLE == 0 and count <= MAX_UNTHREADED and x.is_contiguous():
        return function(x)
    flat = functional.pad(x.reshape(-1), (0, -count % _SIMD_MULTIPLE))
    return torch.cat([function(piece) for piece in flat.split(MAX_UNTHREADED)])[:count].view(x.shape)


class RMSNorm(nn.RMSNorm):
    """RMSNorm of torch, with a faster backward pass in training on a CPU."""

    unit_offset = False

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[..., width]`."""
        if self.eps is not None and x.dtype == self.weight.dtype and use_fused_backward(x, self.weight):
            return RMSNormFn.apply(x, self.weight, self.eps)
        return super().forward(x)


class _UnitOffsetRMSNorm(RMSNorm):
    """RMSNorm whose weight is stored as the difference from 1; computed in float32."""

    unit_offset = True

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[..., width]`."""
        wide = torch.promote_types(x.dtype, torch.float32)
        normed = functional.rms_norm(x.to(wide), self.normalized_shape, 1 + self.weight.to(wide), self.eps)
        return normed.to(x.dtype)


def make_norm(settings: nn_config.NormConfig, width: int) -> nn.LayerNorm | RMSNorm:
    """Build the layer norm or RMSNorm described by `settings` for vectors of `width`."""
    if isinstance(settings, nn_config.LayerNormConfig):
        return nn.LayerNorm(width, eps=settings.eps, bias=settings.bias)
    return (_UnitOffsetRMSNorm if settings.unit_offset else RMSNorm)(width, eps=settings.eps)


def use_fused_backward(*arrays: Tensor) -> bool:
    """Return True in eager training on a CPU, where these functions are used."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return all(array.device.type == "cpu" for array in arrays) and any(array.requires_grad for array in arrays)


class ReluSquaredFn(Function):
    """relu(x)²; saves max(x, 0), since the derivative is twice that."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """Return relu(x)²."""
        positive = functional.relu(x)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """Return 2 max(x, 0) times the gradient."""
        (positive,) = ctx.saved_tensors
        return (gradient * positive).mul_(2)


class RMSNormFn(Function):
    """RMSNorm with weight; saves the normalised x."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:  # type: ignore[no-untyped-def]
        """Normalise, then multiply by the weight."""
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        factor = mean_square.add_(epsilon).rsqrt_()
        normed = x * factor
        ctx.save_for_backward(normed, factor, weight)
        return normed * weight

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        """Remove the gradient's component along x, which would only change the norm, and scale."""
        normed, factor, weight = ctx.saved_tensors
        weight_gradients = (gradient * normed).flatten(0, -2)
        projection = torch.mv(weight_gradients, weight).view(factor.shape).div_(-normed.shape[-1])
        x_gradient = torch.mul(gradient, weight).addcmul_(normed, projection).mul_(factor)
        return x_gradient, weight_gradients.sum(0), None


class RotaryFn(Function):
    """Rotary embedding; the backward pass rotates by the opposite angles and saves only cos and sin."""

    @staticmethod
    def forward(ctx, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """Rotate the pairs; the result is contiguous."""
        ctx.save_for_backward(cos, sin)
        return _rotate(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        """Rotate the gradient by the opposite angles."""
        cos, sin = ctx.saved_tensors
        return _rotate(gradient, cos, -sin), None, None


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    rotated = x.new_empty(x.shape)
    first, second = rotated.chunk(2, dim=-1)
    torch.mul(left, cos, out=first).addcmul_(right, sin, value=-1)
    torch.mul(right, cos, out=second).addcmul_(left, sin)
    return rotated


class TokenShiftFn(Function):
    """Token shift of `[batch, time, width]`: the first half of each vector is the previous token's, 0 for the first."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """Shift the first half by one position."""
        shifted = x.new_empty(x.shape)
        half = x.shape[-1] // 2
        shifted[..., half:] = x[..., half:]
        shifted[:, 1:, :half] = x[:, :-1, :half]
        shifted[:, 0, :half] = 0
        return shifted

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """Shift the first half of the gradient back."""
        x_gradient = gradient.new_empty(gradient.shape)
        half = gradient.shape[-1] // 2
        x_gradient[..., half:] = gradient[..., half:]
        x_gradient[:, :-1, :half] = gradient[:, 1:, :half]
        x_gradient[:, -1, :half] = 0
        return x_gradient
