"""Torch modules around the numba kernels: linear layers, norms and varlen attention on raw pointers."""

import ctypes
import struct
from abc import abstractmethod
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.generation.openmp import run_on_openmp_team
from peasy.generation.packed_linear import TINY, PackedLinear
from peasy.nn.attention import Attention
from peasy.nn.attention_backends import FormulaBackend
from peasy.nn.capture import AttentionInputs
from peasy.nn.forward_context import ForwardContext
from peasy.nn.kv_cache import KVBatch

_TILE_CHANNELS, _CHANNEL_RANGES = 4, 16
"""Output channels per tile, and number of channel ranges that the threads share for load balance."""

_NineWords, _FourteenWords = ctypes.c_int64 * 9, ctypes.c_int64 * 14
"""Kernel arguments: arrays of 64-bit words."""

_CHECKED_CHANNELS = 64
"""Channels at either end that are compared when the kernel is checked."""


def has_numba() -> bool:
    """True if numba is installed (without importing it)."""
    return find_spec("numba") is not None


class KernelLinear(PackedLinear):
    """x Wᵀ + b by the numba kernel; four output channels are interleaved, so that weights are read in one stream."""

    vector_step, kernel_name = 8, ""
    packed: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.activation_code = self.activated_channels = 0
        channels, width = self.shape
        self.padded_width = -(-width // self.vector_step) * self.vector_step
        self.channels_per_task = max(_TILE_CHANNELS, channels // _CHANNEL_RANGES // _TILE_CHANNELS * _TILE_CHANNELS)
        self.bias_vector = torch.zeros(channels) if bias is None else bias.detach().float().contiguous()
        self.scale, self.max_code = torch.ones(channels), 0
        # compiled once per machine and cached by numba; imported here, as numba is optional
        self.address = int(getattr(import_module("peasy.generation.packed_kernel"), self.kernel_name).address)

    @abstractmethod
    def is_exact(self) -> bool:
        """True if the kernel gives the correct result for a few rows."""

    def fuse_activation(self, activation: str, channels: int) -> bool:
        """Fuse an activation of the first channels; return False if the kernel does not have it."""
        from peasy.generation.packed_kernel import ACTIVATION_CODES

        self.activation_code, self.activated_channels = ACTIVATION_CODES.get(activation, 0), channels
        return self.activation_code > 0

    def interleave(self, weight: Tensor) -> Tensor:
        """Interleave four channels, one vector step of each in turn; pad with zeros to whole steps and fours."""
        channels, width = self.shape
        padded_weight = functional.pad(weight, (0, self.padded_width - width, 0, -channels % _TILE_CHANNELS))
        return (
            padded_weight.view(-1, _TILE_CHANNELS, self.padded_width // self.vector_step, self.vector_step)
            .transpose(1, 2)
            .contiguous()
        )

    def deinterleaved(self) -> Tensor:
        """Return the weights in their original layout."""
        channels, width = self.shape
        return self.packed.transpose(1, 2).reshape(-1, self.padded_width)[:channels, :width]

    def forward(self, x: Tensor) -> Tensor:
        """Map `[..., width]` to `[..., width']`; batch-invariant."""
        rows = self.prepare_input(x)
        output = rows.new_empty(*x.shape[:-1], self.shape[0])
        words = (
            0, output.numel() // self.shape[0], self.shape[1], self.padded_width, self.shape[0], self.channels_per_task,
            self.max_code, rows.data_ptr(), self.packed.data_ptr(), self.scale.data_ptr(), self.bias_vector.data_ptr(),
            output.data_ptr(), self.activation_code, self.activated_channels,
        )  # fmt: skip
        run_on_openmp_team(self.address, _FourteenWords(*words))
        return output

    def prepare_input(self, x: Tensor) -> Tensor:
        """Return the input as contiguous float32."""
        return (x if x.dtype == torch.float32 else x.float()).contiguous()

    def nbytes(self) -> int:
        """Bytes of the weights and their scales."""
        return self.packed.numel() * self.packed.element_size() + 4 * self.shape[0]


class Float32Kernel(KernelLinear):
    """Linear layer in float32 by the numba kernel."""

    kernel_name = "linear_float32"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = self.interleave(weight.detach().float())

    def prepare_input(self, x: Tensor) -> Tensor:
        """Pad the input to the width of the packed weights."""
        rows = super().prepare_input(x)
        return (
            rows if self.padded_width == self.shape[1] else functional.pad(rows, (0, self.padded_width - self.shape[1]))
        )

    def is_exact(self) -> bool:
        """True if results agree to float32 rounding."""
        rows, channels, output = _run_sample(self)
        exact = rows.double() @ self.deinterleaved()[channels].double().T + self.bias_vector[channels]
        return _is_close(output, exact)


class Int8Kernel(KernelLinear):
    """Int8 weights with per-channel scales; activations of up to 16 bits with per-row scales.

    Activations get as many bits as 32-bit accumulators allow without overflow.
    """

    vector_step, kernel_name = 16, "linear_int8"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        weight = weight.detach().float()
        self.scale = (weight.abs().amax(dim=1) / 127).clamp_(min=TINY)
        codes = (weight / self.scale[:, None]).round_()
        self.max_code = min(2**15 - 1, (2**31 - 1) // max(1, int(codes.abs().sum(dim=1, dtype=torch.float64).max())))
        self.packed = self.interleave(codes.to(torch.int8))

    def is_exact(self) -> bool:
        """True if results agree; integer sums are exact."""
        rows, channels, output = _run_sample(self)
        size = rows.abs().amax(dim=1, keepdim=True)
        codes = (rows * (self.max_code / size)).round().double()
        sums = codes @ self.deinterleaved()[channels].double().T
        scale = size.double() / self.max_code * self.scale[channels]
        return _is_close(output, sums * scale + self.bias_vector[channels])


def _run_sample(linear: KernelLinear) -> tuple[Tensor, Tensor, Tensor]:
    """Return sample rows, channels at both ends, and the kernel's result for them without its activation."""
    channels, width = linear.shape
    rows = torch.randn(3, width, generator=torch.Generator().manual_seed(0))
    checked = torch.tensor(
        sorted({*range(min(_CHECKED_CHANNELS, channels)), *range(max(0, channels - _CHECKED_CHANNELS), channels)})
    )
    activation, linear.activation_code = linear.activation_code, 0
    output, linear.activation_code = linear.forward(rows)[:, checked], activation
    return rows, checked, output


def _is_close(output: Tensor, exact: Tensor) -> bool:
    return bool((output - exact).abs().max() <= 1e-5 * exact.abs().max().clamp(min=TINY))


class KernelNorm(nn.Module):
    """LayerNorm or RMSNorm by the numba kernel; few rows run on one thread."""

    def __init__(self, norm: nn.LayerNorm | nn.RMSNorm) -> None:
        super().__init__()
        from peasy.generation.packed_kernel import NORM_ROWS, normalise_rows

        assert norm.eps is not None, "the kernel needs an epsilon"
        unit_offset = getattr(norm, "unit_offset", False)
        self.weight: Tensor = 1 + norm.weight.detach() if unit_offset else norm.weight
        self.bias = getattr(norm, "bias", None)
        self.bias_vector = torch.zeros_like(norm.weight) if self.bias is None else self.bias.detach()
        self.subtract_mean, self.epsilon_bits = isinstance(norm, nn.LayerNorm), _float_bits(norm.eps)
        self.address = int(normalise_rows.address or 0)
        self.single_thread_rows = NORM_ROWS

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[..., width]`."""
        x, width = x.contiguous(), x.shape[-1]
        output, rows = torch.empty_like(x), x.numel() // width
        pointers = x.data_ptr(), self.weight.data_ptr(), self.bias_vector.data_ptr(), output.data_ptr()
        run_on_openmp_team(
            self.address,
            _NineWords(0, rows, width, self.subtract_mean, *pointers, self.epsilon_bits),
            single_thread=rows <= self.single_thread_rows,
        )
        return output


def _float_bits(number: float) -> int:
    return struct.unpack("i", struct.pack("f", number))[0]


class PackedVarlenBackend(FormulaBackend):
    """Varlen attention backend: all sequences of a pass in one kernel call, each query computed row-wise.

    With a tap or an intervention the same kernel runs sequence by sequence, so the bits are the same; padding, a bias
    or a padded batch goes to the `fallback`.
    """

    def __init__(self, fallback: FormulaBackend) -> None:
        from peasy.generation.packed_attention import QUERY_BLOCK, attend_varlen

        self.fallback, self.address, self.query_block = fallback, int(attend_varlen.address or 0), QUERY_BLOCK

    def attend(self, layer: Attention, ctx: ForwardContext, query: Tensor, kv: KVBatch) -> Tensor:
        """Attend for all sequences in one call, if nothing is inspected or padded."""
        if len(query) > 1 or ctx.any_tap or ctx.any_intervention or layer.has_padding(ctx):
            return super().attend(layer, ctx, query, kv)
        seq_lens = ctx.seq_lens or [query.shape[2]]
        new_kv = kv.new if kv.caches else None
        return self.attend_varlen(
            query, new_kv, kv.reserve(seq_lens), seq_lens, layer.scale, not layer.is_cross, layer.window
        )

    def run(self, inputs: AttentionInputs) -> Tensor:
        """Attend for one sequence whose mask is a range of keys, without a bias."""
        mask = inputs.attention_mask
        if mask.key_range is None or mask.bias is not None or len(inputs.query) > 1:
            return self.fallback.run(inputs)
        kv, seq_lens = [(inputs.key, inputs.value, inputs.key.shape[2])], [inputs.query.shape[2]]
        output = self.attend_varlen(inputs.query, None, kv, seq_lens, inputs.scale, *mask.key_range)
        return output.unflatten(-1, (inputs.query.shape[1], -1)).transpose(1, 2)

    def attend_varlen(
        self,
        query: Tensor,
        new_kv: tuple[Tensor, Tensor] | None,
        kv: Sequence[tuple[Tensor, Tensor, int]],
        seq_lens: Sequence[int],
        scale: float,
        causal: bool,
        window: int | None,
    ) -> Tensor:
        """Attend for the concatenated queries of all sequences; return `[1, all new tokens, heads * d_head]`.

        `kv`: keys and values of each sequence, `[1, kv_head, time, d_head]`, and their valid length; `new_kv`
        keys and values, if given, are appended to them.
        """
        _, heads, total, width = query.shape
        output = query.new_empty(1, total, heads * width)
        q_layout, output_address, new_layout, table = _address_and_strides(query), output.data_ptr(), (0,) * 6, []
        if new_kv is not None:
            new_layout = (*_address_and_strides(new_kv[0]), *_address_and_strides(new_kv[1]))
        done = 0
        for (key, value, length), size in zip(kv, seq_lens, strict=True):
            append_words = [
                new_layout[0] + done * new_layout[1], *new_layout[1:3],
                new_layout[3] + done * new_layout[4], *new_layout[4:],
            ]  # fmt: skip
            if new_kv is not None and size > self.query_block:  # several query blocks would each append: do it here
                append_words = [0] * 6
                for cached, appended in zip((key, value), new_kv, strict=True):
                    cached.narrow(2, length - size, size).copy_(appended.narrow(2, done, size))
            table += [
                q_layout[0] + done * q_layout[1], *q_layout[1:], *_address_and_strides(key),
                *_address_and_strides(value), size, length, output_address, *append_words,
            ]  # fmt: skip
            done, output_address = done + size, output_address + size * 4 * heads * width
        table_words = (ctypes.c_int64 * len(table))(*table)
        kv_heads, address = kv[0][0].shape[1], ctypes.addressof(table_words)
        words = (0, len(kv), heads, kv_heads, width, causal, window or 0, address, _float_bits(scale))
        run_on_openmp_team(self.address, _NineWords(*words))
        return output


def _address_and_strides(array: Tensor) -> tuple[int, int, int]:
    """Return the address of `[1, head, time, width]` and its token and head strides in bytes."""
    _, head, time, _ = array.stride()
    return array.data_ptr(), 4 * time, 4 * head
