"""Decoder-only Transformer: causal language model."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from peasy.models.config import DecoderConfig
from peasy.models.protocol import Interventions, Model, Taps
from peasy.models.transformer import make_context, pack_sequences, select_logits
from peasy.nn.embedding import Embedding
from peasy.nn.forward_context import InterventionLike
from peasy.nn.kv_cache import KVCache
from peasy.nn.lm_head import LMHead
from peasy.nn.stack import Stack
from peasy.nn.tap import Tap


class Decoder(Model):
    """Causal Transformer: embedding, blocks, LM head."""

    config: DecoderConfig

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        norm = config.stack.norm
        self.embedding = Embedding(
            config.vocab_size,
            config.d_model,
            config.embedding,
            config.position,
            norm,
            config.max_seq_len,
            config.dropout,
        )
        self.decoder = Stack(
            "decoder", config.d_model, config.stack, config.position, causal=True, dropout=config.dropout
        )
        self.lm_head = LMHead(config.vocab_size, config.d_model, config.lm_head, norm)

    def new_state(self, batch: int = 1, *, capacity: int = 0, **source: Any) -> KVCache:
        """Return an empty KV cache."""
        return KVCache.empty(self.decoder.windows, capacity)

    def hidden(
        self,
        ids: Tensor,
        *,
        padding_mask: Tensor | None = None,
        cache: KVCache | None = None,
        tap: Tap | None = None,
        intervention: InterventionLike | None = None,
        **source: Any,
    ) -> Tensor:
        """Return the hidden states of the last layer."""
        ctx = make_context(
            self.embedding, ids, padding_mask, causal=True, kv_cache=cache, tap=tap, intervention=intervention
        )
        return self.decoder(self.embedding(ids, ctx), ctx)

    def forward_varlen(
        self,
        sequences: Sequence[Sequence[int]],
        states: Sequence[KVCache],
        *,
        all_positions: bool = False,
        tap: Taps = None,
        intervention: Interventions = None,
    ) -> list[Tensor]:
        """Run all new tokens in one packed batch; each attends to the KV cache of its sequence."""
        if not sequences:
            return []
        ids, ctx = pack_sequences(self.embedding, sequences, states, tap, intervention)
        hidden = self.decoder(self.embedding(ids, ctx), ctx)
        return select_logits(hidden, ctx, all_positions, self.logits)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.lm_head(hidden_states, self.embedding.token.weight)
