"""Multi-head attention: projections, RoPE, KV cache, mask and the fused kernel.

Steps requested by a tap are recomputed by the formula; the module's output always comes from the kernel, so a tap
changes no bit of it.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.nn import config as nn_config
from peasy.nn.capture import AttentionInputs, capture_steps
from peasy.nn.forward_context import ForwardContext
from peasy.nn.intervention import intervene_attention, intervene_context
from peasy.nn.kv_cache import LayerKVCache
from peasy.nn.mask import AttentionMask, MaskSpec
from peasy.nn.norm import make_norm
from peasy.nn.position import apply_rope
from peasy.nn.tap import ModulePath


class VarlenAttention(Protocol):
    """Attention backend for a packed batch of sequences of different lengths."""

    def __call__(
        self,
        query: Tensor,
        new_kv: tuple[Tensor, Tensor] | None,
        kv: Sequence[tuple[Tensor, Tensor, int]],
        seq_lens: Sequence[int],
        options: tuple[float, bool, int | None],
    ) -> Tensor:
        """Return the concatenated head outputs of all sequences: `[1, all new tokens, heads * d_head]`.

        `kv` has for each sequence the buffers of its keys and values, `[1, kv_head, time, d_head]`, and their
        length; `new_kv`, if given, is written to the end of them. `options` is (scale, causal, window).
        """


class Attention(nn.Module):
    """Multi-head self-attention, or (part "cross_attention") cross-attention to an encoder.

    For decoding, `qkv_proj` may hold the three projections as one packed linear layer. With `batch_invariant` each
    query attends separately to exactly its keys, so its bits do not depend on the other sequences of the pass;
    `backend` does so for all sequences at once, if there is no bias or padding.
    """

    def __init__(
        self, d_model: int, settings: nn_config.AttentionConfig, norm: nn_config.NormConfig, path: ModulePath
    ) -> None:
        super().__init__()
        self.path, self.is_cross = path, path.part == "cross_attention"
        self.qkv_proj: nn.Module | None = None
        self.batch_invariant = False
        self.backend: VarlenAttention | None = None
        self.num_heads, self.num_kv_heads = settings.num_heads, settings.num_kv_heads or settings.num_heads
        self.d_head = settings.d_head or d_model // settings.num_heads
        self.scale = self.d_head**-0.5 if settings.scale is None else settings.scale
        self.softcap = settings.softcap
        self.window = None if self.is_cross else settings.window_for_layer(path.layer)
        self.query = nn.Linear(d_model, self.num_heads * self.d_head, bias=settings.bias)
        self.key = nn.Linear(d_model, self.num_kv_heads * self.d_head, bias=settings.bias)
        self.value = nn.Linear(d_model, self.num_kv_heads * self.d_head, bias=settings.bias)
        self.output = nn.Linear(self.num_heads * self.d_head, d_model, bias=settings.output_bias)
        self.query_norm = make_norm(norm, self.d_head) if settings.qk_norm else None
        self.key_norm = make_norm(norm, self.d_head) if settings.qk_norm else None

    def forward(self, x: Tensor, ctx: ForwardContext) -> Tensor:
        """Map `[batch, time, d_model]` to the same shape."""
        qkv = self._project(x, ctx)
        if self.backend is not None and len(x) == 1 and self._can_use_varlen(ctx):
            return self.output(self._attend_varlen(ctx, *qkv))
        if not ctx.sequences:
            return self.output(self._attend_one(ctx, *qkv))
        if len(ctx.sequences) == 1:
            return self.output(self._attend_one(ctx.sequences[0], *qkv))
        split_qkv = zip(*(array.split(ctx.seq_lens, dim=2) for array in qkv), strict=True)
        contexts = [
            self._attend_one(sequence, *arrays) for sequence, arrays in zip(ctx.sequences, split_qkv, strict=True)
        ]
        return self.output(torch.cat(contexts, dim=1))

    def _attend_varlen(self, ctx: ForwardContext, query: Tensor, *new_kv: Tensor) -> Tensor:
        """Attend for all sequences in one call of the backend."""
        assert self.backend is not None
        sequences, seq_lens = ctx.sequences or (ctx,), ctx.seq_lens or [query.shape[2]]
        options = (self.scale, not self.is_cross, self.window)
        caches = [self._layer_cache(sequence) for sequence in sequences]
        if self.is_cross:
            cross_kv = [self._cross_kv(sequence) for sequence in sequences]
            return self.backend(query, None, [(key, value, key.shape[2]) for key, value in cross_kv], seq_lens, options)
        if caches[0] is None:
            return self.backend(query, None, [(*new_kv, query.shape[2])], seq_lens, options)  # type: ignore[list-item]
        kv = [cache.reserve(n, *new_kv) for cache, n in zip(caches, seq_lens, strict=True) if cache is not None]
        return self.backend(query, (new_kv[0], new_kv[1]), kv, seq_lens, options)

    def _can_use_varlen(self, ctx: ForwardContext) -> bool:
        """Return True if the backend can be used: no tap, intervention, padding or bias."""
        for sequence in ctx.sequences or (ctx,):
            mask_spec = sequence.cross_mask_spec if self.is_cross else sequence.mask_spec
            if sequence.tap is not None or sequence.intervention is not None or mask_spec is None:
                return False
            if not self._is_unbiased_causal(mask_spec):
                return False
        return True

    def _is_unbiased_causal(self, mask_spec: MaskSpec) -> bool:
        """Return True if there is neither padding nor bias: plainly causal, or all keys of an encoder."""
        return (
            mask_spec.padding_mask is None and mask_spec.position_bias is None and mask_spec.causal is not self.is_cross
        )

    def _attend_one(self, ctx: ForwardContext, query: Tensor, *new_kv: Tensor) -> Tensor:
        """Attend for one sequence or a padded batch; heads are concatenated: `[batch, time, heads * d_head]`."""
        key, value = self._cross_kv(ctx) if self.is_cross else self._update_cache(ctx, *new_kv)
        mask_spec = ctx.cross_mask_spec if self.is_cross else ctx.mask_spec
        assert mask_spec is not None, "cross-attention needs an encoder output"
        mask = mask_spec.attention_mask(self.window, key.shape[2])
        inputs = AttentionInputs(query, key, value, mask, self.scale, self.softcap)
        inputs = intervene_attention(ctx.intervention, self.path, inputs, mask_spec)
        context = self._run_kernel(mask_spec, inputs)
        if ctx.tap is not None and ctx.tap.wants(self.path):
            capture_steps(ctx.tap, self.path, inputs, context)
        context = intervene_context(ctx.intervention, self.path, context, mask_spec.query_positions)
        return context.transpose(1, 2).flatten(2)

    def summary(self) -> str:
        """Return a one-line summary."""
        direction = "causal" if self.path.stack == "decoder" else "bidirectional"
        kind = "cross-attention" if self.is_cross else direction
        grouped = f", {self.num_kv_heads} KV heads" if self.num_kv_heads != self.num_heads else ""
        window = f", window {self.window}" if self.window else ""
        return f"{self.num_heads} heads of {self.d_head}{grouped}, {kind}{window}"

    def _project(self, x: Tensor, ctx: ForwardContext) -> list[Tensor]:
        """Return queries and, in self-attention, keys and values: split into heads, with RoPE applied."""
        if self.is_cross:
            return [self._split_queries(self.query(x))]
        if self.qkv_proj is None:
            query = self._split_queries(self.query(x))
            key, value = self._split_keys_values(self.key(x), self.value(x))
        else:
            query, key, value = self._project_packed(x)
        if ctx.cos_sin is None:
            return [query, key, value]
        return [apply_rope(query, ctx.cos_sin), apply_rope(key, ctx.cos_sin), value]

    def _project_packed(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values with the packed projection."""
        assert self.qkv_proj is not None
        heads = _split_heads(self.qkv_proj(x), self.num_heads + 2 * self.num_kv_heads)
        query, key, value = heads.split_with_sizes([self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=1)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return query, key, value

    def _split_queries(self, query: Tensor) -> Tensor:
        query = _split_heads(query, self.num_heads)
        return query if self.query_norm is None else self.query_norm(query)

    def _split_keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        key, value = _split_heads(key, self.num_kv_heads), _split_heads(value, self.num_kv_heads)
        return (key if self.key_norm is None else self.key_norm(key)), value

    def _run_kernel(self, mask_spec: MaskSpec, inputs: AttentionInputs) -> Tensor:
        if not self._needs_row_wise(mask_spec, inputs):
            return attend_fused(inputs)
        if self.backend is None or not self._is_unbiased_causal(mask_spec) or len(inputs.query) > 1:
            return attend_row_wise(inputs, self.window, mask_spec.causal)
        n_query, options = inputs.query.shape[2], (self.scale, mask_spec.causal, self.window)
        kv = [(inputs.key, inputs.value, inputs.key.shape[2])]
        return _split_heads(self.backend(inputs.query, None, kv, [n_query], options), self.num_heads)

    def _needs_row_wise(self, mask_spec: MaskSpec, inputs: AttentionInputs) -> bool:
        """Return True if each query attends separately; not in an encoder, with padding, or where edges were cut."""
        if not self.batch_invariant or mask_spec.padding_mask is not None or not (mask_spec.causal or self.is_cross):
            return False
        return inputs.attention_mask is mask_spec.attention_mask(self.window, inputs.key.shape[2])

    def _update_cache(self, ctx: ForwardContext, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        cache = self._layer_cache(ctx)
        return (key, value) if cache is None else cache.extend(key, value)

    def _cross_kv(self, ctx: ForwardContext) -> tuple[Tensor, Tensor]:
        cache = self._layer_cache(ctx)
        if cache is not None and cache.cross_kv is not None:
            return cache.cross_kv
        assert ctx.encoder_output is not None, "cross-attention needs an encoder output"
        cross_kv = self._split_keys_values(self.key(ctx.encoder_output), self.value(ctx.encoder_output))
        if cache is not None:
            cache.cross_kv = cross_kv
        return cross_kv

    def _layer_cache(self, ctx: ForwardContext) -> LayerKVCache | None:
        return None if ctx.kv_cache is None else ctx.kv_cache.layers[self.path.layer]


def attend_fused(inputs: AttentionInputs) -> Tensor:
    """Return the context of every query, `[batch, head, query, d_value]`, by the fused kernel or the formula.

    The formula is used for a soft cap, which the kernel lacks, and where the kernel would let a NaN through the mask.
    """
    query, key, value = inputs.query, inputs.key, inputs.value
    if inputs.softcap or (inputs.attention_mask.has_mask and not _all_finite(key, value)):
        return inputs.compute_steps().context.to(query.dtype)
    mask, causal = inputs.attention_mask.sdpa_args(query)
    grouped = query.shape[1] != key.shape[1]
    return functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal, scale=inputs.scale, enable_gqa=grouped
    )


def attend_row_wise(inputs: AttentionInputs, window: int | None, causal: bool) -> Tensor:
    """Attend with one kernel call per query over exactly its keys: bits do not depend on the number of queries."""
    query, time, n_key = inputs.query, inputs.query.shape[2], inputs.key.shape[2]
    if time == 1 and not inputs.attention_mask.has_mask:
        return attend_fused(inputs)
    contexts = []
    for row in range(time):
        last = n_key - time + row + 1 if causal else n_key
        first = 0 if window is None else max(last - window, 0)
        full_bias = inputs.attention_mask.bias
        bias = None if full_bias is None else full_bias[:, :, row : row + 1, first:last]
        key, value = inputs.key[:, :, first:last], inputs.value[:, :, first:last]
        row_inputs = AttentionInputs(
            query[:, :, row : row + 1], key, value, AttentionMask(bias=bias), inputs.scale, inputs.softcap
        )
        contexts.append(attend_fused(row_inputs))
    return contexts[0] if time == 1 else torch.cat(contexts, dim=2)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """Split heads: `[batch, time, heads * width]` to `[batch, head, time, width]`."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _all_finite(key: Tensor, value: Tensor) -> bool:
    """Return True if all numbers are finite; by a sum, as an overflow only means the slower, equally correct path."""
    if torch.compiler.is_compiling():
        return True
    total = key.detach().sum(dtype=torch.float32) + value.detach().sum(dtype=torch.float32)
    return bool(torch.isfinite(total))
