"""Products with weights that lie ready for decoding: few rows, and the time goes into reading the weights.

Every product here takes `[..., width]` and gives what `x Wᵀ + b` gives, exactly (float32) or nearly (the others).
"""

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

ROWS = 16
"""oneDNN lays weights out for so many rows: one row loses a few per cent by it, eight gain a third."""

LIMIT = 128
"""Where two neighbouring weights of one sign add up to no more, u8 times s8 never leaves 16 bits: 255 · 128 < 2¹⁵."""

SMALLEST = torch.finfo(torch.float32).tiny


class Product(nn.Module):
    """x Wᵀ + b. With `least`, fewer rows are filled up to so many, where a processor needs it for equal bits."""

    kind = "plain"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.shape, self.least = tuple(weight.shape), 1
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """`[..., width]` to `[..., width']`."""
        rows = x.reshape(-1, x.shape[-1])
        missing = self.least - len(rows)
        found = (
            self.multiply(functional.pad(rows, (0, 0, 0, missing)))[: len(rows)] if missing > 0 else self.multiply(rows)
        )
        return found.view(*x.shape[:-1], self.shape[0])

    @abstractmethod
    def multiply(self, rows: Tensor) -> Tensor:
        """`[row, width]` to `[row, width']`."""

    @abstractmethod
    def nbytes(self) -> int:
        """How many bytes the packed weights take."""


class Plain(Product):
    """The weights as they are: where there is no library to pack them for."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = weight.detach()

    def multiply(self, rows: Tensor) -> Tensor:
        """By torch's own product."""
        return functional.linear(rows.to(self.packed.dtype), self.packed, self.bias).float()

    def nbytes(self) -> int:
        """The weights'."""
        return self.packed.numel() * self.packed.element_size()


class Prepacked(Plain):
    """Weights in the order in which oneDNN reads them."""

    kind = "oneDNN"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)

    def multiply(self, rows: Tensor) -> Tensor:
        """By oneDNN."""
        rows = rows.to(self.packed.dtype).contiguous()
        return torch.ops.mkldnn._linear_pointwise(rows, self.packed, self.bias, "none", [], "").float()


class ByRow(Product):
    """Weights of 8 bits with a scale for each channel, and rows of 8 bits with a scale for each row.

    Rows never influence each other: each is divided by its largest magnitude and multiplied back.
    """

    kind = "FBGEMM"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = pack_bytes(weight.detach().float())

    def multiply(self, rows: Tensor) -> Tensor:
        """In whole numbers, and back."""
        size = torch.linalg.vector_norm(rows, math.inf, dim=1, keepdim=True).clamp_(min=SMALLEST)
        found = _multiply_bytes(rows / size, 1 / 127, 128, self.packed)
        return found.mul_(size) if self.bias is None else torch.addcmul(self.bias, found, size)

    def nbytes(self) -> int:
        """One byte a weight, and a scale for each channel."""
        return self.shape[0] * (self.shape[1] + 4)


class ByRowFromLeast(ByRow):
    """The same for rows that lean to one side, as after an activation: from their least to their largest number."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.sums = unpack_bytes(self.packed).sum(dim=1)

    def multiply(self, rows: Tensor) -> Tensor:
        """x = least + range · u, so that x Wᵀ = least · (sums of W) + range · u Wᵀ."""
        least, most = rows.aminmax(dim=1, keepdim=True)
        spread = most.sub_(least).clamp_(min=SMALLEST)
        found = _multiply_bytes((rows - least).div_(spread), 1 / 255, 0, self.packed)
        found = found.mul_(spread) if self.bias is None else torch.addcmul(self.bias, found, spread)
        return found.addcmul_(least, self.sums)


class ByTensor(ByRow):
    """One scale for all rows of a pass: faster, and the rows of a batch influence each other."""

    def multiply(self, rows: Tensor) -> Tensor:
        """In whole numbers, and back."""
        found = _find_op("linear_dynamic")(rows.contiguous(), self.packed, False)
        return found if self.bias is None else found.add_(self.bias)


def _multiply_bytes(rows: Tensor, step: float, zero: int, packed: torch.ScriptObject) -> Tensor:
    """Rows become bytes in the given steps."""
    found: Tensor = _find_op("linear_with_input_q_dq_qweight_dq_output_fp32")(rows, step, zero, packed)
    return found


@cache
def _find_op(name: str) -> Callable[..., Tensor]:
    """The operation itself: torch's wrapper takes as long as a small product to look at what it is given."""
    found = getattr(torch.ops.quantized, name).default
    return getattr(found, "_op", found)


Make = Callable[[Tensor, Tensor | None], Product]


def has_onednn() -> bool:
    """Can weights be packed for oneDNN here?"""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


def has_bytes() -> bool:
    """Can torch multiply in 8 bits here?"""
    return "fbgemm" in torch.backends.quantized.supported_engines


def has_bfloat16() -> bool:
    """Has this processor instructions for bfloat16?"""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def scale_channels(weight: Tensor) -> Tensor:
    """What one step of a byte is worth in each channel: as fine as can be without ever leaving 16 bits.

    Processors without 8-bit dot products add two neighbouring products in 16 bits, and cut off what is more.
    """
    pairs = functional.pad(weight, (0, weight.shape[1] % 2)).unflatten(1, (-1, 2))
    same_sign = torch.maximum(pairs.clamp(min=0).sum(-1), -pairs.clamp(max=0).sum(-1)).amax(dim=1)
    # Rounding may add half a step to each of the two, so that one step is left free.
    return torch.maximum(weight.abs().amax(dim=1) / 127, same_sign / (LIMIT - 1)).clamp_(min=SMALLEST)


def pack_bytes(weight: Tensor) -> torch.ScriptObject:
    """Weights as bytes with a scale for each channel, packed for FBGEMM."""
    scale = scale_channels(weight).double()
    zero = torch.zeros(len(weight), dtype=torch.long)
    engine = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantized tensors will go some day; the pinned torch has them
        torch.backends.quantized.engine = "fbgemm"
        try:
            whole = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(whole, None)
        finally:
            torch.backends.quantized.engine = engine


def unpack_bytes(packed: torch.ScriptObject) -> Tensor:
    """The weights that the bytes stand for."""
    return torch.ops.quantized.linear_unpack(packed)[0].dequantize()
