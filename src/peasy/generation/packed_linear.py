"""Prepacked linear layers for decoding: oneDNN (float32, bfloat16) and FBGEMM (int8).

Each maps `[..., width]` to `x Wᵀ + b`, exactly (float32) or approximately (the others).
"""

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

_PACK_ROWS = 16
"""Batch size for which oneDNN packs weights: one row loses a few per cent, eight rows gain a third."""

_MAX_PAIR_SUM = 128
"""Bound on the sum of two neighbouring weights of one sign: u8 x s8 pairs then fit 16 bits (255 · 128 < 2¹⁵)."""

TINY = torch.finfo(torch.float32).tiny


class PackedLinear(nn.Module):
    """Packed linear layer x Wᵀ + b; batches below `min_rows` are zero-padded, where batch invariance needs it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.shape, self.min_rows = tuple(weight.shape), 1
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """Map `[..., width]` to `[..., width']`."""
        rows = x.reshape(-1, x.shape[-1])
        missing = self.min_rows - len(rows)
        output = (
            self.multiply(functional.pad(rows, (0, 0, 0, missing)))[: len(rows)] if missing > 0 else self.multiply(rows)
        )
        return output.view(*x.shape[:-1], self.shape[0])

    @abstractmethod
    def multiply(self, rows: Tensor) -> Tensor:
        """Map `[row, width]` to `[row, width']`."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the packed weights."""


class TorchLinear(PackedLinear):
    """Unpacked linear layer by torch; used where oneDNN is missing."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = weight.detach()

    def multiply(self, rows: Tensor) -> Tensor:
        """Multiply by torch."""
        return functional.linear(rows.to(self.packed.dtype), self.packed, self.bias).float()

    def nbytes(self) -> int:
        """Bytes of the weights."""
        return self.packed.numel() * self.packed.element_size()


class OneDNNLinear(TorchLinear):
    """Linear layer with weights in oneDNN's blocked layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _PACK_ROWS)

    def multiply(self, rows: Tensor) -> Tensor:
        """Multiply by oneDNN."""
        rows = rows.to(self.packed.dtype).contiguous()
        return torch.ops.mkldnn._linear_pointwise(rows, self.packed, self.bias, "none", [], "").float()


class Int8PerRow(PackedLinear):
    """Int8 weights with per-channel scales and int8 activations with per-row scales (FBGEMM).

    Each row is divided by its own largest magnitude, so rows do not influence each other.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        weight = weight.detach().float()
        scale = channel_scales(weight)
        weights = torch.round(weight * (1 / scale)[:, None]).clamp_(-128, 127).to(torch.int8)
        self.packed = _prepack_int8(weights, scale)
        self.weight_sums = weights.sum(dim=1, dtype=torch.int32) * scale

    def multiply(self, rows: Tensor) -> Tensor:
        """Quantise, multiply in int8, dequantise."""
        size = torch.linalg.vector_norm(rows, math.inf, dim=1, keepdim=True).clamp_(min=TINY)
        output = _int8_linear(rows / size, 1 / 127, 128, self.packed)
        return output.mul_(size) if self.bias is None else torch.addcmul(self.bias, output, size)

    def nbytes(self) -> int:
        """One byte per weight and a float scale per channel."""
        return self.shape[0] * (self.shape[1] + 4)


class Int8PerRowAsymmetric(Int8PerRow):
    """Int8 layer with asymmetric quantisation, for one-sided rows as after an activation: from min to max."""

    def multiply(self, rows: Tensor) -> Tensor:
        """Multiply as x Wᵀ = min · (row sums of W) + range · u Wᵀ, with x = min + range · u."""
        minimum, maximum = rows.aminmax(dim=1, keepdim=True)
        spread = maximum.sub_(minimum).clamp_(min=TINY)
        output = _int8_linear((rows - minimum).div_(spread), 1 / 255, 0, self.packed)
        output = output.mul_(spread) if self.bias is None else torch.addcmul(self.bias, output, spread)
        return output.addcmul_(minimum, self.weight_sums)


def _int8_linear(rows: Tensor, scale: float, zero_point: int, packed: torch.ScriptObject) -> Tensor:
    """Quantise rows with this scale and zero point, multiply, dequantise."""
    return _int8_op()(rows, scale, zero_point, packed)


@cache
def _int8_op() -> Callable[..., Tensor]:
    """Return the raw torch operation: its Python wrapper costs as much time as a small product."""
    overload = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
    return getattr(overload, "_op", overload)


LinearFactory = Callable[[Tensor, Tensor | None], PackedLinear]


HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
"""Whether torch can pack weights for oneDNN."""


def has_int8() -> bool:
    """True if torch has FBGEMM's int8 operations, and the quantised tensors that they take."""
    has_tensors = hasattr(torch, "_make_per_channel_quantized_tensor")
    return has_tensors and "fbgemm" in torch.backends.quantized.supported_engines


def channel_scales(weight: Tensor) -> Tensor:
    """Return the int8 scale of each channel: as fine as possible without overflow in 16 bits.

    CPUs without VNNI add two neighbouring products in saturating 16-bit arithmetic.
    """
    pairs = functional.pad(weight, (0, weight.shape[1] % 2)).unflatten(1, (-1, 2))
    same_sign = torch.maximum(pairs.clamp(min=0).sum(-1), -pairs.clamp(max=0).sum(-1)).amax(dim=1)
    # Rounding may add half a step to each of the two weights: leave one step free.
    return torch.maximum(weight.abs().amax(dim=1) / 127, same_sign / (_MAX_PAIR_SUM - 1)).clamp_(min=TINY)


def _prepack_int8(weights: Tensor, scale: Tensor) -> torch.ScriptObject:
    """Pack int8 weights with their scales for FBGEMM."""
    zero = torch.zeros(len(weights), dtype=torch.long)
    engine = torch.backends.quantized.engine
    with warnings.catch_warnings():
        # FBGEMM takes weights only as one of torch's quantised tensors, all of which are deprecated
        warnings.simplefilter("ignore")
        torch.backends.quantized.engine = "fbgemm"
        try:
            quantised = torch._make_per_channel_quantized_tensor(weights, scale.double(), zero, 0)
            return torch.ops.quantized.linear_prepack(quantised, None)
        finally:
            torch.backends.quantized.engine = engine
