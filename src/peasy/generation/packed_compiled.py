"""Torch modules around the numba kernels: linear layers, norms and varlen attention on raw pointers."""

import ctypes
import struct
from abc import abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.generation.packed_product import SMALLEST, Product
from peasy.generation.packed_team import share

CHANNELS, PIECES = 4, 16
"""Output channels per tile, and number of channel ranges that the threads share for load balance."""

NINE, FOURTEEN = ctypes.c_int64 * 9, ctypes.c_int64 * 14
"""Kernel arguments: arrays of 64-bit words."""

SOME = 64
"""Channels at either end that are compared when the kernel is checked."""


def has_kernel() -> bool:
    """True if numba is installed (without importing it)."""
    return find_spec("numba") is not None


class Compiled(Product):
    """x Wᵀ + b by the numba kernel; four output channels are interleaved, so that weights are read in one stream."""

    kind, step = "numba", 8
    packed: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.bend = self.bent = 0
        channels, width = self.shape
        self.padded = -(-width // self.step) * self.step
        self.span = max(CHANNELS, channels // PIECES // CHANNELS * CHANNELS)
        self.added = torch.zeros(channels) if bias is None else bias.detach().float().contiguous()
        self.scale, self.most = torch.ones(channels), 0
        self.address = self.find()

    @abstractmethod
    def find(self) -> Any:
        """Return the address of the compiled function; it is compiled once per machine and cached."""

    @abstractmethod
    def agrees(self) -> bool:
        """True if the kernel gives the correct result for a few rows."""

    def bend_too(self, activation: str, channels: int) -> bool:
        """Fuse an activation of the first channels; return False if the kernel does not have it."""
        from peasy.generation.packed_kernel import BENDS

        self.bend, self.bent = BENDS.get(activation, 0), channels
        return self.bend > 0

    def weave(self, weight: Tensor) -> Tensor:
        """Interleave four channels, one vector step of each in turn; pad with zeros to whole steps and fours."""
        channels, width = self.shape
        padded_weight = functional.pad(weight, (0, self.padded - width, 0, -channels % CHANNELS))
        return padded_weight.view(-1, CHANNELS, self.padded // self.step, self.step).transpose(1, 2).contiguous()

    def unwoven(self) -> Tensor:
        """Return the weights in their original layout."""
        channels, width = self.shape
        return self.packed.transpose(1, 2).reshape(-1, self.padded)[:channels, :width]

    def forward(self, x: Tensor) -> Tensor:
        """Map `[..., width]` to `[..., width']`; batch-invariant."""
        rows = self.ready(x)
        output = rows.new_empty(*x.shape[:-1], self.shape[0])
        words = (
            0, output.numel() // self.shape[0], self.shape[1], self.padded, self.shape[0], self.span, self.most,
            rows.data_ptr(), self.packed.data_ptr(), self.scale.data_ptr(), self.added.data_ptr(), output.data_ptr(),
            self.bend, self.bent,
        )  # fmt: skip
        share(self.address, FOURTEEN(*words))
        return output

    def multiply(self, rows: Tensor) -> Tensor:
        """Map `[row, width]` to `[row, width']`."""
        return self.forward(rows)

    def ready(self, x: Tensor) -> Tensor:
        """Return the input as contiguous float32."""
        return (x if x.dtype == torch.float32 else x.float()).contiguous()

    def nbytes(self) -> int:
        """Bytes of the weights and their scales."""
        return self.packed.numel() * self.packed.element_size() + 4 * self.shape[0]


class Floating(Compiled):
    """Linear layer in float32 by the numba kernel."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = self.weave(weight.detach().float())

    def find(self) -> Any:
        """Return the address of the float32 kernel."""
        from peasy.generation.packed_kernel import multiply_floating

        return multiply_floating.address

    def ready(self, x: Tensor) -> Tensor:
        """Pad the input to the width of the packed weights."""
        rows = super().ready(x)
        return rows if self.padded == self.shape[1] else functional.pad(rows, (0, self.padded - self.shape[1]))

    def agrees(self) -> bool:
        """True if results agree to float32 rounding."""
        rows, channels, output = _try_out(self)
        exact = rows.double() @ self.unwoven()[channels].double().T + self.added[channels]
        return _near(output, exact)


class Whole(Compiled):
    """Int8 weights with per-channel scales; activations of up to 16 bits with per-row scales.

    Activations get as many bits as 32-bit accumulators allow without overflow.
    """

    step = 16

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        weight = weight.detach().float()
        self.scale = (weight.abs().amax(dim=1) / 127).clamp_(min=SMALLEST)
        codes = (weight / self.scale[:, None]).round_()
        self.most = min(2**15 - 1, (2**31 - 1) // max(1, int(codes.abs().sum(dim=1, dtype=torch.float64).max())))
        self.packed = self.weave(codes.to(torch.int8))

    def find(self) -> Any:
        """Return the address of the int8 kernel."""
        from peasy.generation.packed_kernel import multiply_whole

        return multiply_whole.address

    def agrees(self) -> bool:
        """True if results agree; integer sums are exact."""
        rows, channels, output = _try_out(self)
        size = rows.abs().amax(dim=1, keepdim=True)
        codes = (rows * (self.most / size)).round().double()
        sums = codes @ self.unwoven()[channels].double().T
        return _near(output, sums * (size.double() / self.most * self.scale[channels]) + self.added[channels])


def _try_out(product: Compiled) -> tuple[Tensor, Tensor, Tensor]:
    """Return sample rows, channels at both ends, and the kernel's result for them without its activation."""
    channels, width = product.shape
    rows = torch.randn(3, width, generator=torch.Generator().manual_seed(0))
    checked = torch.tensor(sorted({*range(min(SOME, channels)), *range(max(0, channels - SOME), channels)}))
    activation, product.bend = product.bend, 0
    output, product.bend = product.forward(rows)[:, checked], activation
    return rows, checked, output


def _near(found: Tensor, exact: Tensor) -> bool:
    return bool((found - exact).abs().max() <= 1e-5 * exact.abs().max().clamp(min=SMALLEST))


class CompiledNorm(nn.Module):
    """LayerNorm or RMSNorm by the numba kernel; few rows run on one thread."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        from peasy.generation.packed_kernel import FEW, normalise_rows

        self.weight, self.bias, self.epsilon = norm.weight, getattr(norm, "bias", None), norm.eps
        self.added = torch.zeros_like(norm.weight) if self.bias is None else self.bias.detach()
        self.centred, self.bits = isinstance(norm, nn.LayerNorm), _bits(norm.eps)
        self.address: Any = normalise_rows.address
        self.few = FEW

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[..., width]`."""
        x, width = x.contiguous(), x.shape[-1]
        output, rows = torch.empty_like(x), x.numel() // width
        pointers = x.data_ptr(), self.weight.data_ptr(), self.added.data_ptr(), output.data_ptr()
        share(self.address, NINE(0, rows, width, self.centred, *pointers, self.bits), alone=rows <= self.few)
        return output


def _bits(number: float) -> int:
    return struct.unpack("i", struct.pack("f", number))[0]


class Looker:
    """Varlen attention backend: all sequences of a pass in one kernel call, each query computed row-wise."""

    def __init__(self) -> None:
        from peasy.generation.packed_look import HIGH, look

        self.address: Any = look.address
        self.high = HIGH

    def __call__(
        self,
        query: Tensor,
        new: tuple[Tensor, Tensor] | None,
        known: Sequence[tuple[Tensor, Tensor, int]],
        sizes: Sequence[int],
        how: tuple[float, bool, int | None],
    ) -> Tensor:
        """Attend for the concatenated queries of all sequences; return `[1, all new tokens, heads * d_head]`.

        `kv`: keys and values of each sequence, `[1, kv_head, time, d_head]`, and their valid length; `new` keys and
        values, if given, are appended to them. `options`: (scale, causal, window).
        """
        scale, causal, window = how
        _, heads, total, width = query.shape
        output = query.new_empty(1, total, heads * width)
        q_layout, output_address, new_layout, table = _place(query), output.data_ptr(), (0,) * 6, []
        if new is not None:
            new_layout = (*_place(new[0]), *_place(new[1]))
        done = 0
        for (key, value, length), size in zip(known, sizes, strict=True):
            append_words = [
                new_layout[0] + done * new_layout[1], *new_layout[1:3],
                new_layout[3] + done * new_layout[4], *new_layout[4:],
            ]  # fmt: skip
            if new is not None and size > self.high:  # several query blocks would each append: append here instead
                append_words = [0] * 6
                for cached, appended in zip((key, value), new, strict=True):
                    cached.narrow(2, length - size, size).copy_(appended.narrow(2, done, size))
            table += [
                q_layout[0] + done * q_layout[1], *q_layout[1:], *_place(key), *_place(value),
                size, length, output_address, *append_words,
            ]  # fmt: skip
            done, output_address = done + size, output_address + size * 4 * heads * width
        table_words = (ctypes.c_int64 * len(table))(*table)
        kv_heads, address = known[0][0].shape[1], ctypes.addressof(table_words)
        words = (0, len(known), heads, kv_heads, width, causal, window or 0, address, _bits(scale))
        share(self.address, NINE(*words))
        return output


def _place(array: Tensor) -> tuple[int, int, int]:
    """Return the address of `[1, head, time, width]` and its token and head strides in bytes."""
    _, head, time, _ = array.stride()
    return array.data_ptr(), 4 * time, 4 * head
