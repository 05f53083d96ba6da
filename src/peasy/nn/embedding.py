"""Token embedding with n-grams, positions, segments and norm; and the token shift, which reads the previous token."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.errors import InvalidInput
from peasy.nn import config as nn_config
from peasy.nn.forward_context import ForwardContext
from peasy.nn.functional import TokenShiftFn, make_norm, use_fused_backward
from peasy.nn.module_path import ModulePath
from peasy.nn.position import sinusoidal_encoding


class Embedding(nn.Module):
    """Embedding of token ids, plus position, segment and n-gram embeddings; `tokens` are those of another embedding."""

    token: nn.Embedding

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        settings: nn_config.EmbeddingConfig,
        position: nn_config.PositionConfig | None,
        norm: nn_config.NormConfig,
        max_seq_len: int | None = None,
        dropout: float = 0.0,
        tokens: nn.Embedding | None = None,
    ) -> None:
        super().__init__()
        self.position_config, self.max_seq_len = position, max_seq_len
        width = settings.width or d_model
        self.scale = settings.multiplier * (d_model**0.5 if settings.scaled else 1.0)
        if tokens is None:
            self.token = nn.Embedding(vocab_size, width)
        else:
            object.__setattr__(self, "token", tokens)  # not registered: its weight is stored once, by its owner
        self.position = None
        if isinstance(position, nn_config.LearnedPositionConfig):
            assert max_seq_len is not None, "learned positions need a maximum length"
            self.position = nn.Embedding(max_seq_len + position.offset, width)
        tables = [nn.Embedding(settings.ngram_buckets, width) for _ in range(settings.max_ngram - 1)]
        self.ngram = nn.ModuleList(tables) if tables else None
        self.segment = nn.Embedding(settings.segments, width) if settings.segments else None
        self.norm = make_norm(norm, width) if settings.norm else None
        self.projection = None if settings.width is None else nn.Linear(width, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, ctx: ForwardContext, segments: Tensor | None = None) -> Tensor:
        """Embed `ids` `[batch, time]` at the query positions of the context: `[batch, time, d_model]`."""
        x = self.token(ids) if self.ngram is None else self._add_ngrams(ids, ctx, self.ngram)
        if self.scale != 1.0:
            x = x * self.scale
        if self.segment is not None:
            x = x + (self.segment.weight[0] if segments is None else self.segment(segments))
        positions = ctx.mask_spec.query_positions
        if isinstance(self.position_config, nn_config.SinusoidalPositionConfig):
            x = x + sinusoidal_encoding(positions, x.shape[-1], self.position_config).to(x.dtype)
        elif self.position is not None and isinstance(self.position_config, nn_config.LearnedPositionConfig):
            x = x + self.position(positions + self.position_config.offset)
        x = self.dropout(x if self.norm is None else self.norm(x))
        return x if self.projection is None else self.projection(x)

    def summary(self) -> str:
        """Return a one-line summary."""
        positions = "" if self.position_config is None else f", {self.position_config.kind} positions"
        ngrams = "" if self.ngram is None else f", n-grams of up to {len(self.ngram) + 1} tokens"
        return f"ids to vectors{ngrams}{positions}"

    def _add_ngrams(self, ids: Tensor, ctx: ForwardContext, tables: nn.ModuleList) -> Tensor:
        """Sum the vectors of each token and of the n-grams ending at it; ids are shifted by 1, 0 = before the start."""
        x, base = self.token(ids), self.token.num_embeddings + 1
        ngram_ids = earlier = ids + 1
        for length, table in enumerate(tables, 2):
            earlier = previous_token(earlier[..., None], ctx, 0, f"{length}-gram")[..., 0]
            ngram_ids = ngram_ids * base + earlier
            assert isinstance(table, nn.Embedding)
            x = x + table(ngram_ids % table.num_embeddings)
        return x

    def check_length(self, length: int) -> None:
        """Raise if a sequence is longer than the learned position table."""
        if self.position is not None and self.max_seq_len is not None and length > self.max_seq_len:
            message = f"The text has {length} tokens; this model reads at most {self.max_seq_len}."
            raise InvalidInput(message, hint="Shorten the text, or choose a model with a longer context.")


def token_shift(x: Tensor, ctx: ForwardContext, path: ModulePath) -> Tensor:
    """Replace the first half of each vector of `[batch, time, width]` by that of the previous token, or by 0.

    It has no weights, and gives a character model bigrams before its first attention. With a KV cache, the vectors of
    earlier tokens are kept there.
    """
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
