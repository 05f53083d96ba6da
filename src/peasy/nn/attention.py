"""Multi-head attention: project, apply RoPE, extend the KV cache, run the layer's attention backend, project back.

`forward` hands the queries, keys and values of all sequences of a pass with their KV caches to the layer's backend
(`attention_backends.py`), as vLLM does. The backend is torch's fused kernel unless packing chose a row-wise or varlen
kernel; what one does not support goes to the next, down to the formula. Taps and interventions act around the kernel,
never instead of it, so a tap changes no bit of the output.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from peasy.nn import config as nn_config
from peasy.nn.attention_backends import FUSED, FormulaBackend
from peasy.nn.forward_context import ForwardContext
from peasy.nn.functional import make_norm
from peasy.nn.intervention import edit_activation
from peasy.nn.kv_cache import KVBatch, LayerKVCache
from peasy.nn.module_path import ModulePath
from peasy.nn.position import apply_rope

LinearFactory = Callable[[Tensor, Tensor | None], nn.Module]
"""Makes a linear layer of a weight `[output, input]` and a bias."""


class Attention(nn.Module):
    """Multi-head self-attention; `backend` is chosen when the model is built or packed."""

    is_cross = False

    def __init__(
        self, d_model: int, settings: nn_config.AttentionConfig, norm: nn_config.NormConfig, path: ModulePath
    ) -> None:
        super().__init__()
        self.path = path
        self.backend: FormulaBackend = FUSED
        self.qkv_proj: nn.Module | None = None
        self.num_heads, self.num_kv_heads = settings.num_heads, settings.num_kv_heads or settings.num_heads
        self.d_head = settings.d_head or d_model // settings.num_heads
        self.scale = self.d_head**-0.5 if settings.scale is None else settings.scale
        self.softcap = settings.softcap
        self.window = None if self.is_cross else settings.window_for_layer(path.layer)
        self.query = nn.Linear(d_model, self.num_heads * self.d_head, bias=settings.bias)
        self.key = nn.Linear(d_model, self.num_kv_heads * self.d_head, bias=settings.bias)
        self.value = nn.Linear(d_model, self.num_kv_heads * self.d_head, bias=settings.bias)
        self.output = nn.Linear(self.num_heads * self.d_head, d_model, bias=settings.output_bias)
        self.norm_projections = settings.qk_norm_over == "projection"
        counts = (self.num_heads, self.num_kv_heads) if self.norm_projections else (1, 1)
        widths = [self.d_head * count for count in counts]
        self.query_norm = make_norm(norm, widths[0]) if settings.qk_norm else None
        self.key_norm = make_norm(norm, widths[1]) if settings.qk_norm else None
        self.sinks = nn.Parameter(torch.zeros(self.num_heads)) if settings.sinks else None

    def forward(self, x: Tensor, ctx: ForwardContext) -> Tensor:
        """Map `[batch, time, d_model]` to the same shape."""
        query, key, value = self._project(x)
        if ctx.rope and (cos_sin := ctx.rope[self.path.layer]) is not None:
            query, key = apply_rope(query, cos_sin), apply_rope(key, cos_sin)
        if ctx.any_intervention:
            steps = zip(("query", "key", "value"), (query, key, value), strict=True)
            query, key, value = (ctx.edit(self.path, step, array, 2) for step, array in steps)
        if ctx.sequences:
            caches = [self._layer_cache(sequence) for sequence in ctx.sequences]
        else:
            caches = [] if ctx.kv_cache is None else [self._layer_cache(ctx)]
        context = self.backend.attend(self, ctx, query, KVBatch((key, value), caches))
        return self.output(context)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, `[batch, head, time, d_head]`."""
        if self.qkv_proj is None:
            query = _split_heads(self.query(x), self.num_heads)
            key, value = (_split_heads(linear(x), self.num_kv_heads) for linear in (self.key, self.value))
        else:
            heads = _split_heads(self.qkv_proj(x), self.num_heads + 2 * self.num_kv_heads)
            query, key, value = heads.split_with_sizes([self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=1)
        return self._norm_heads(self.query_norm, query), self._norm_heads(self.key_norm, key), value

    def _norm_heads(self, norm: nn.Module | None, heads: Tensor) -> Tensor:
        """Normalise each head `[batch, head, time, d_head]` by itself, or all heads of a token together."""
        if norm is None or not self.norm_projections:
            return heads if norm is None else norm(heads)
        return _split_heads(norm(heads.transpose(1, 2).flatten(2)), heads.shape[1])

    def fuse_projections(self, make_linear: LinearFactory) -> None:
        """Replace the projections of queries, keys and values by one linear layer, for decoding."""
        self.qkv_proj = fuse_linears(make_linear, self.query, self.key, self.value)
        del self.query, self.key, self.value

    def has_padding(self, ctx: ForwardContext) -> bool:
        """Return True if any key of any sequence is padding."""
        return ctx.any_padding

    def _layer_cache(self, ctx: ForwardContext) -> LayerKVCache:
        assert ctx.kv_cache is not None, "each sequence of a packed batch has a KV cache"
        return ctx.kv_cache.layers[self.path.layer]

    def summary(self) -> str:
        """Return a one-line summary."""
        direction = "causal" if self.path.stack == "decoder" else "bidirectional"
        kind = "cross-attention" if self.is_cross else direction
        grouped = f", {self.num_kv_heads} KV heads" if self.num_kv_heads != self.num_heads else ""
        window = f", window {self.window}" if self.window else ""
        return f"{self.num_heads} heads of {self.d_head}{grouped}, {kind}{window}"


class CrossAttention(Attention):
    """Multi-head attention to an encoder output, whose keys and values are computed once and kept in the KV cache."""

    is_cross = True

    def forward(self, x: Tensor, ctx: ForwardContext) -> Tensor:
        """Map `[batch, time, d_model]` to the same shape."""
        query = self._norm_heads(self.query_norm, _split_heads(self.query(x), self.num_heads))
        query = ctx.edit(self.path, "query", query, 2)
        encoder_kv = [self._encoder_kv(sequence) for sequence in ctx.sequences or (ctx,)]
        context = self.backend.attend(self, ctx, query, KVBatch(encoder_kv=encoder_kv))
        return self.output(context)

    def _encoder_kv(self, ctx: ForwardContext) -> tuple[Tensor, Tensor]:
        cache = None if ctx.kv_cache is None else self._layer_cache(ctx)
        if cache is not None and cache.cross_kv is not None:
            return cache.cross_kv
        assert ctx.encoder_output is not None, "cross-attention needs an encoder output"
        projections = (self.key(ctx.encoder_output), self.value(ctx.encoder_output))
        key, value = (_split_heads(projection, self.num_kv_heads) for projection in projections)
        key = self._norm_heads(self.key_norm, key)
        positions = torch.arange(key.shape[2], device=key.device)[None]
        pairs = (("key", key), ("value", value))
        intervention = ctx.active_intervention
        key, value = (edit_activation(intervention, self.path, step, array, positions) for step, array in pairs)
        if cache is not None:
            cache.cross_kv = key, value
        return key, value

    def fuse_projections(self, make_linear: LinearFactory) -> None:
        """Do nothing: queries, keys and values have different inputs."""

    def has_padding(self, ctx: ForwardContext) -> bool:
        """Return True if any key of any sequence is padding."""
        masks = (sequence.cross_mask_spec for sequence in ctx.sequences or (ctx,))
        return any(mask is not None and mask.padding_mask is not None for mask in masks)


def fuse_linears(make_linear: LinearFactory, *linears: nn.Linear) -> nn.Module:
    """Return one linear layer in place of several with the same input (query, key, value; gate, up)."""
    weights: list[Tensor] = [linear.weight for linear in linears]
    biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    return make_linear(torch.cat(weights), torch.cat(biases) if biases else None)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """Split heads: `[batch, time, heads * width]` to `[batch, head, time, width]`."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
