"""Products and attention by the kernel: what torch hands over, and what it gets back."""

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
"""Channels are multiplied four at a time; so many pieces of them are shared by the threads, so that none waits long."""

NINE, FOURTEEN = ctypes.c_int64 * 9, ctypes.c_int64 * 14
"""Tasks are words of 64 bits."""

SOME = 64
"""So many channels at either end are looked at when the kernel is tried out."""


def has_kernel() -> bool:
    """Is there a compiler of kernels? It is not loaded by asking."""
    return find_spec("numba") is not None


class Compiled(Product):
    """x Wᵀ + b by the kernel. Four channels of weights are woven, so that memory is read in one stream."""

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
        """Where the machine's function is; the first time on a machine it is compiled, and kept for the next."""

    @abstractmethod
    def agrees(self) -> bool:
        """Tried out: are a few rows what they should be?"""

    def bend_too(self, activation: str, channels: int) -> bool:
        """End with an activation of the first channels, if the kernel has it."""
        from peasy.generation.packed_kernel import BENDS

        self.bend, self.bent = BENDS.get(activation, 0), channels
        return self.bend > 0

    def weave(self, weight: Tensor) -> Tensor:
        """A step of each of four channels, then the next step; zeros up to whole steps and whole fours."""
        channels, width = self.shape
        full = functional.pad(weight, (0, self.padded - width, 0, -channels % CHANNELS))
        return full.view(-1, CHANNELS, self.padded // self.step, self.step).transpose(1, 2).contiguous()

    def unwoven(self) -> Tensor:
        """The weights as they were given, channel by channel."""
        channels, width = self.shape
        return self.packed.transpose(1, 2).reshape(-1, self.padded)[:channels, :width]

    def forward(self, x: Tensor) -> Tensor:
        """`[..., width]` to `[..., width']`; a row is computed alike in any company."""
        rows = self.ready(x)
        found = rows.new_empty(*x.shape[:-1], self.shape[0])
        words = (
            0, found.numel() // self.shape[0], self.shape[1], self.padded, self.shape[0], self.span, self.most,
            rows.data_ptr(), self.packed.data_ptr(), self.scale.data_ptr(), self.added.data_ptr(), found.data_ptr(),
            self.bend, self.bent,
        )  # fmt: skip
        share(self.address, FOURTEEN(*words))
        return found

    def multiply(self, rows: Tensor) -> Tensor:
        """The same."""
        return self.forward(rows)

    def ready(self, x: Tensor) -> Tensor:
        """The rows as the kernel reads them."""
        return (x if x.dtype == torch.float32 else x.float()).contiguous()

    def nbytes(self) -> int:
        """The weights', and their scales'."""
        return self.packed.numel() * self.packed.element_size() + 4 * self.shape[0]


class Floating(Compiled):
    """Everything in float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = self.weave(weight.detach().float())

    def find(self) -> Any:
        """The function for float32."""
        from peasy.generation.packed_kernel import multiply_floating

        return multiply_floating.address

    def ready(self, x: Tensor) -> Tensor:
        """Rows are padded like the weights."""
        rows = super().ready(x)
        return rows if self.padded == self.shape[1] else functional.pad(rows, (0, self.padded - self.shape[1]))

    def agrees(self) -> bool:
        """To the rounding of float32."""
        rows, some, found = _try_out(self)
        exact = rows.double() @ self.unwoven()[some].double().T + self.added[some]
        return _near(found, exact)


class Whole(Compiled):
    """Weights of 8 bits with a scale for each channel, and rows of up to 16 bits with a scale for each row.

    A row gets as many bits as its sums leave room for in 32: nothing is ever cut off.
    """

    step = 16

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        weight = weight.detach().float()
        self.scale = (weight.abs().amax(dim=1) / 127).clamp_(min=SMALLEST)
        whole = (weight / self.scale[:, None]).round_()
        self.most = min(2**15 - 1, (2**31 - 1) // max(1, int(whole.abs().sum(dim=1, dtype=torch.float64).max())))
        self.packed = self.weave(whole.to(torch.int8))

    def find(self) -> Any:
        """The function for whole numbers."""
        from peasy.generation.packed_kernel import multiply_whole

        return multiply_whole.address

    def agrees(self) -> bool:
        """The sums of whole numbers are exact."""
        rows, some, found = _try_out(self)
        size = rows.abs().amax(dim=1, keepdim=True)
        codes = (rows * (self.most / size)).round().double()
        sums = codes @ self.unwoven()[some].double().T
        return _near(found, sums * (size.double() / self.most * self.scale[some]) + self.added[some])


def _try_out(product: Compiled) -> tuple[Tensor, Tensor, Tensor]:
    """A few rows, channels at both ends, and the product of these without its activation."""
    channels, width = product.shape
    rows = torch.randn(3, width, generator=torch.Generator().manual_seed(0))
    some = torch.tensor(sorted({*range(min(SOME, channels)), *range(max(0, channels - SOME), channels)}))
    bend, product.bend = product.bend, 0
    found, product.bend = product.forward(rows)[:, some], bend
    return rows, some, found


def _near(found: Tensor, exact: Tensor) -> bool:
    return bool((found - exact).abs().max() <= 1e-5 * exact.abs().max().clamp(min=SMALLEST))


class CompiledNorm(nn.Module):
    """A norm by the kernel: few rows do not wake a second thread."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        from peasy.generation.packed_kernel import FEW, normalise_rows

        self.weight, self.bias, self.epsilon = norm.weight, getattr(norm, "bias", None), norm.eps
        self.added = torch.zeros_like(norm.weight) if self.bias is None else self.bias.detach()
        self.centred, self.bits = isinstance(norm, nn.LayerNorm), _bits(norm.eps)
        self.address: Any = normalise_rows.address
        self.few = FEW

    def forward(self, x: Tensor) -> Tensor:
        """`[..., width]` to the same."""
        x, width = x.contiguous(), x.shape[-1]
        found, rows = torch.empty_like(x), x.numel() // width
        at = x.data_ptr(), self.weight.data_ptr(), self.added.data_ptr(), found.data_ptr()
        share(self.address, NINE(0, rows, width, self.centred, *at, self.bits), alone=rows <= self.few)
        return found


def _bits(number: float) -> int:
    return struct.unpack("i", struct.pack("f", number))[0]


class Looker:
    """Attention by the kernel: all texts of a pass in one call, every query alone with the keys it sees."""

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
        """What the queries of all texts, side by side, find: `[1, all new tokens, heads * d_head]`.

        `known` are each text's keys and values, `[1, key_head, time, d_head]`, and how many of them count; where `new`
        ones are given, they are written behind those held before. `how` is (scale, is it causal, window).
        """
        scale, causal, window = how
        _, heads, total, width = query.shape
        found = query.new_empty(1, total, heads * width)
        at, to, fresh, table = _place(query), found.data_ptr(), (0,) * 6, []
        if new is not None:
            fresh = (*_place(new[0]), *_place(new[1]))
        done = 0
        for (key, value, length), size in zip(known, sizes, strict=True):
            own = [fresh[0] + done * fresh[1], *fresh[1:3], fresh[3] + done * fresh[4], *fresh[4:]]
            if new is not None and size > self.high:  # a long text is looked up in several goes
                own = [0] * 6
                for held, fresh_one in zip((key, value), new, strict=True):
                    held.narrow(2, length - size, size).copy_(fresh_one.narrow(2, done, size))
            table += [at[0] + done * at[1], *at[1:], *_place(key), *_place(value), size, length, to, *own]
            done, to = done + size, to + size * 4 * heads * width
        held_words = (ctypes.c_int64 * len(table))(*table)
        shared, address = known[0][0].shape[1], ctypes.addressof(held_words)
        words = (0, len(known), heads, shared, width, causal, window or 0, address, _bits(scale))
        share(self.address, NINE(*words))
        return found


def _place(array: Tensor) -> tuple[int, int, int]:
    """Address of `[1, head, time, width]`, and the bytes to the next token and to the next head."""
    _, head, time, _ = array.stride()
    return array.data_ptr(), 4 * time, 4 * head
