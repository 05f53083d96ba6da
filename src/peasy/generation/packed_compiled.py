"""Products and attention by the kernel: what torch hands over, and what it gets back."""

import ctypes
import struct
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from peasy.generation.packed_product import SMALLEST, Product
from peasy.generation.packed_team import share

CHANNELS, PIECES = 4, 16
"""Channels are multiplied four at a time; so many pieces of them are shared by the threads, so that none waits long."""

SOME = 64
"""So many channels at either end are looked at when the kernel is tried out."""


def has_kernel() -> bool:
    """Is there a compiler of kernels? It is not loaded by asking."""
    return find_spec("numba") is not None


class Compiled(Product):
    """x Wᵀ + b by the kernel. The weights lie as they are, padded to whole steps of the machine."""

    kind, step = "numba", 8

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        channels, width = self.shape
        self.padded = -(-width // self.step) * self.step
        self.span = max(CHANNELS, channels // PIECES // CHANNELS * CHANNELS)
        self.added = torch.zeros(channels) if bias is None else bias.detach().float().contiguous()
        self.scale, self.most = torch.ones(channels), 0
        self.address = self.find()

    def find(self) -> int:
        """Where the machine's function is; the first time on a machine it is compiled, and kept for the next."""
        from peasy.generation.packed_kernel import multiply_floating

        return multiply_floating.address

    def pad(self, weight: Tensor) -> Tensor:
        """Zeros up to whole steps and whole tiles."""
        channels, width = self.shape
        return functional.pad(weight, (0, self.padded - width, 0, -channels % CHANNELS)).contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """`[..., width]` to `[..., width']`; a row is computed alike in any company."""
        rows = self.ready(x)
        found = rows.new_empty(*x.shape[:-1], self.shape[0])
        words = (
            0, found.numel() // self.shape[0], self.shape[1], self.padded, self.shape[0], self.span, self.most,
            rows.data_ptr(), self.packed.data_ptr(), self.scale.data_ptr(), self.added.data_ptr(), found.data_ptr(),
        )  # fmt: skip
        share(self.address, (ctypes.c_int64 * 12)(*words))
        return found

    def multiply(self, rows: Tensor) -> Tensor:
        """The same."""
        return self(rows)

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
        self.packed = self.pad(weight.detach().float())

    def ready(self, x: Tensor) -> Tensor:
        """Rows are padded like the weights."""
        rows = super().ready(x)
        return rows if self.padded == self.shape[1] else functional.pad(rows, (0, self.padded - self.shape[1]))

    def agrees(self) -> bool:
        """Tried out: are a few rows what they should be?"""
        rows, some = _try_out(self)
        exact = rows.double() @ self.packed[some, : self.shape[1]].double().T + self.added[some]
        return _near(self(rows)[:, some], exact)


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
        self.packed = self.pad(whole.to(torch.int8))

    def find(self) -> int:
        """Where the machine's function is."""
        from peasy.generation.packed_kernel import multiply_whole

        return multiply_whole.address

    def agrees(self) -> bool:
        """Tried out: are the sums of whole numbers exact?"""
        rows, some = _try_out(self)
        size = rows.abs().amax(dim=1, keepdim=True)
        codes = (rows * (self.most / size)).round().double()
        sums = codes @ self.packed[some, : self.shape[1]].double().T
        return _near(self(rows)[:, some], sums * (size.double() / self.most * self.scale[some]) + self.added[some])


def _try_out(product: Compiled) -> tuple[Tensor, Tensor]:
    channels, width = product.shape
    rows = torch.randn(3, width, generator=torch.Generator().manual_seed(0))
    ends = range(max(0, channels - SOME), channels)
    return rows, torch.tensor(sorted({*range(min(SOME, channels)), *ends}))


def _near(found: Tensor, exact: Tensor) -> bool:
    return bool((found - exact).abs().max() <= 1e-5 * exact.abs().max().clamp(min=SMALLEST))


class Looker:
    """Attention by the kernel: all texts of a pass in one call, every query alone with the keys it sees."""

    def __init__(self) -> None:
        from peasy.generation.packed_look import look

        self.address = look.address

    def __call__(
        self, query: Tensor, known: Sequence[tuple[Tensor, Tensor]], sizes: Sequence[int], how: Any
    ) -> Tensor:
        """`query` `[1, head, all new tokens, d_head]`; for each text its keys and values, `[1, key_head, time, d_head]`.

        `how` is (scale, is it causal, window). What they find, heads joined: `[1, all new tokens, heads * d_head]`.
        """
        scale, causal, window = how
        _, heads, total, width = query.shape
        found = query.new_empty(1, total, heads * width)
        _, q_head, q_time, _ = query.stride()
        at, to, table = query.data_ptr(), found.data_ptr(), []
        for (key, value), size in zip(known, sizes, strict=True):
            _, k_head, k_time, _ = key.stride()
            _, v_head, v_time, _ = value.stride()
            table += [
                at, 4 * q_time, 4 * q_head, key.data_ptr(), 4 * k_time, 4 * k_head,
                value.data_ptr(), 4 * v_time, 4 * v_head, size, key.shape[2], to,
            ]  # fmt: skip
            at, to = at + size * 4 * q_time, to + size * 4 * heads * width
        held = (ctypes.c_int64 * len(table))(*table)
        (bits,) = struct.unpack("i", struct.pack("f", scale))
        words = (0, len(known), heads, known[0][0].shape[1], width, causal, window or 0, ctypes.addressof(held), bits)
        share(self.address, (ctypes.c_int64 * 9)(*words))
        return found
