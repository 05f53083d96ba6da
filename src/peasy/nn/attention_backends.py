"""Attention backends: fused SDPA, row-wise batch-invariant, and the formula, with one interface.

A backend is chosen when a model is built (`FUSED`) or packed for decoding (`ROW_WISE`, or the varlen kernel in
`generation/packed_numba.py`). What it does not support goes to the one it falls back to, down to the formula.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from peasy.nn.capture import AttentionInputs, capture_steps
from peasy.nn.forward_context import ForwardContext
from peasy.nn.intervention import edit_activation, edit_attention
from peasy.nn.kv_cache import KVBatch
from peasy.nn.mask import AttentionMask

if TYPE_CHECKING:
    from peasy.nn.attention import Attention


class FormulaBackend:
    """Attention by the formula, which supports everything; other backends replace `run` where they can."""

    def run(self, inputs: AttentionInputs) -> Tensor:
        """Return the context, `[batch, head, query, d_value]`, by all steps of the formula."""
        return inputs.compute_steps().context.to(inputs.query.dtype)

    def attend(self, layer: "Attention", ctx: ForwardContext, query: Tensor, kv: KVBatch) -> Tensor:
        """Return the concatenated head outputs, `[batch, time, heads * d_head]`; new keys and values are appended.

        `query` is `[batch, head, time, d_head]`; in a packed batch, `[1, head, all new tokens, d_head]`, which is
        computed one sequence after the other. A tap recomputes its steps by the formula and changes no bit.
        """
        sequences, contexts = ctx.sequences or (ctx,), []
        queries = query.split(ctx.seq_lens, dim=2) if len(sequences) > 1 else (query,)
        for sequence, new_query, (key, value) in zip(sequences, queries, kv.append(ctx.seq_lens), strict=True):
            mask_spec = sequence.cross_mask_spec if layer.is_cross else sequence.mask_spec
            assert mask_spec is not None, "cross-attention needs an encoder output"
            mask = mask_spec.attention_mask(layer.window, key.shape[2])
            inputs = AttentionInputs(new_query, key, value, mask, layer.scale, layer.softcap, layer.sinks)
            weights = None
            if (intervention := sequence.active_intervention) is not None:
                inputs, weights = edit_attention(intervention, layer.path, inputs.expand_keys(), mask_spec)
            context = self.run(inputs) if weights is None else inputs.context_of(weights)
            if intervention is not None:
                context = edit_activation(intervention, layer.path, "context", context, mask_spec.query_positions)
            if sequence.tap is not None and sequence.tap.wants(layer.path):
                capture_steps(sequence.tap, layer.path, inputs, context, weights)
            contexts.append(context.transpose(1, 2).flatten(2))
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts, dim=1)


class FusedBackend(FormulaBackend):
    """Torch's fused kernel (SDPA), which has no soft cap and no sinks, and would let a NaN through the mask."""

    def run(self, inputs: AttentionInputs) -> Tensor:
        """Run the fused kernel; query heads may share key/value heads (GQA)."""
        mask = inputs.attention_mask
        if inputs.softcap or inputs.sinks is not None or (mask.has_mask and not _all_finite(inputs.key, inputs.value)):
            return super().run(inputs)
        additive, causal = mask.sdpa_args(inputs.query)
        grouped = inputs.query.shape[1] != inputs.key.shape[1]
        return functional.scaled_dot_product_attention(
            inputs.query, inputs.key, inputs.value, additive, is_causal=causal, scale=inputs.scale, enable_gqa=grouped
        )


class RowWiseBackend(FusedBackend):
    """Batch-invariant: one kernel call per query over exactly its keys, so its bits do not depend on other queries.

    The keys of each query must be a range: no padding, no edges cut by an intervention.
    """

    def run(self, inputs: AttentionInputs) -> Tensor:
        """Attend row by row."""
        query, bias, time = inputs.query, inputs.attention_mask.bias, inputs.query.shape[2]
        if inputs.attention_mask.key_range is None or (time == 1 and not inputs.attention_mask.has_mask):
            return super().run(inputs)
        contexts = []
        for row in range(time):
            first, last = inputs.visible_keys(row)
            row_bias = None if bias is None else bias[:, :, row : row + 1, first:last]
            key, value = inputs.key[:, :, first:last], inputs.value[:, :, first:last]
            mask = AttentionMask(bias=row_bias)
            row_query = query[:, :, row : row + 1]
            row_inputs = AttentionInputs(row_query, key, value, mask, inputs.scale, inputs.softcap, inputs.sinks)
            contexts.append(super().run(row_inputs))
        return contexts[0] if time == 1 else torch.cat(contexts, dim=2)


FUSED, ROW_WISE = FusedBackend(), RowWiseBackend()


def _all_finite(key: Tensor, value: Tensor) -> bool:
    """Return True if all numbers are finite; by a sum, as an overflow only means the slower, equally correct path."""
    if torch.compiler.is_compiling():
        return True
    total = key.detach().sum(dtype=torch.float32) + value.detach().sum(dtype=torch.float32)
    return bool(torch.isfinite(total))
