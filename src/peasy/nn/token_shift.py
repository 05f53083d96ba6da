"""Token shift: half of each input vector comes from the previous token.

It has no weights, and gives a character model bigrams before its first attention. With a KV cache, the vectors of
earlier tokens are kept there.
"""

import torch
from torch import Tensor
from torch.nn import functional

from peasy.nn.forward_context import ForwardContext
from peasy.nn.fused_autograd import TokenShiftFn, use_fused_backward
from peasy.nn.module_path import ModulePath


def token_shift(x: Tensor, ctx: ForwardContext, path: ModulePath) -> Tensor:
    """Replace the first half of each vector of `[batch, time, width]` by that of the previous token, or by 0."""
    if ctx.kv_cache is None and not ctx.sequences and ctx.mask_spec.padding_mask is None and use_fused_backward(x):
        return TokenShiftFn.apply(x)
    half = x.shape[-1] // 2
    return torch.cat([previous_token(x[..., :half], ctx, path.layer, path.part), x[..., half:]], dim=-1)


def previous_token(x: Tensor, ctx: ForwardContext, layer: int, state_name: str) -> Tensor:
    """Return `x` `[batch, time, width]` of the previous token, 0 at the start; padding is skipped.

    With a KV cache, `x` is stored in layer `layer` under `state_name`.
    """
    if ctx.sequences:
        sequences = zip(ctx.sequences, x.split(ctx.seq_lens, dim=1), strict=True)
        return torch.cat([previous_token(x_seq, seq_ctx, layer, state_name) for seq_ctx, x_seq in sequences], dim=1)
    all_x = x if ctx.kv_cache is None else ctx.kv_cache.layers[layer].token_shift_state(state_name).extend(x)
    index = ctx.mask_spec.previous_token_index()
    if index is None:
        past = all_x.shape[1] - x.shape[1]
        return all_x[:, past - 1 : -1] if past else functional.pad(all_x[:, :-1], (0, 0, 1, 0))
    previous = all_x.gather(1, index.clamp(min=0)[..., None].expand(-1, -1, x.shape[-1]))
    return previous.masked_fill((index < 0)[..., None], 0)
