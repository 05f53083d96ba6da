"""Encoder-decoder Transformer: bidirectional encoder, causal decoder with cross-attention."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from peasy.errors import InvalidInput
from peasy.models.config import EncoderDecoderConfig
from peasy.models.protocol import Interventions, Model, Taps
from peasy.models.transformer import make_context, normalize_padding_mask, pack_sequences, select_logits
from peasy.nn.embedding import Embedding
from peasy.nn.forward_context import ForwardContext, InterventionLike
from peasy.nn.kv_cache import KVCache
from peasy.nn.lm_head import LMHead
from peasy.nn.mask import MaskSpec
from peasy.nn.stack import Stack
from peasy.nn.tap import Tap


class EncoderDecoder(Model):
    """Transformer of figure 1: encoder stack, decoder stack with cross-attention, LM head."""

    config: EncoderDecoderConfig
    is_encoder_decoder = True

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__(config)
        self.embedding = self._make_embedding(config.vocab_size)
        self.target_embedding = self._make_embedding(config.target_vocab_size) if config.target_vocab_size else None
        self.encoder = Stack(
            "encoder", config.d_model, config.encoder, config.position, causal=False, dropout=config.dropout
        )
        self.decoder = Stack(
            "decoder", config.d_model, config.decoder, config.position, causal=True, cross=True, dropout=config.dropout
        )
        self.lm_head = LMHead(
            config.target_vocab_size or config.vocab_size, config.d_model, config.lm_head, config.decoder.norm
        )

    def _make_embedding(self, vocab_size: int) -> Embedding:
        c = self.config
        return Embedding(vocab_size, c.d_model, c.embedding, c.position, c.encoder.norm, c.max_seq_len, c.dropout)

    @property
    def decoder_embedding(self) -> Embedding:
        """Target embedding; the source embedding if they are shared."""
        return self.target_embedding or self.embedding

    def new_state(
        self,
        batch: int = 1,
        *,
        capacity: int = 0,
        source: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
        **_: Any,
    ) -> KVCache:
        """Encode the source and return a KV cache that holds the encoder output."""
        if source is None:
            raise InvalidInput("This model needs a source sequence, but none was given.", hint="Pass source=ids.")
        cache = KVCache.empty(self.decoder.windows, capacity)
        cache.encoder_output = self.encode(source, padding_mask=source_padding_mask)
        cache.encoder_padding_mask = normalize_padding_mask(source_padding_mask)
        return cache

    def encode(
        self,
        source: Tensor,
        *,
        padding_mask: Tensor | None = None,
        tap: Tap | None = None,
        intervention: InterventionLike | None = None,
    ) -> Tensor:
        """Return the encoder output, `[batch, time, d_model]`."""
        ctx = make_context(self.embedding, source, padding_mask, causal=False, tap=tap, intervention=intervention)
        return self.encoder(self.embedding(source, ctx), ctx)

    def hidden(
        self,
        ids: Tensor,
        *,
        padding_mask: Tensor | None = None,
        cache: KVCache | None = None,
        tap: Tap | None = None,
        intervention: InterventionLike | None = None,
        source: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """Return the decoder's hidden states; a cache from `new_state` already holds the encoder output."""
        ctx = make_context(
            self.decoder_embedding, ids, padding_mask, causal=True, kv_cache=cache, tap=tap, intervention=intervention
        )
        if cache is not None and cache.encoder_output is not None:
            self._set_encoder_output(ctx, cache.encoder_output, cache.encoder_padding_mask)
        elif source is not None:
            encoded = self.encode(source, padding_mask=source_padding_mask, tap=tap, intervention=intervention)
            self._set_encoder_output(ctx, encoded, normalize_padding_mask(source_padding_mask))
        else:
            raise InvalidInput("This model needs a source sequence, but none was given.", hint="Pass source=ids.")
        return self.decoder(self.decoder_embedding(ids, ctx), ctx)

    def forward_varlen(
        self,
        sequences: Sequence[Sequence[int]],
        states: Sequence[KVCache],
        *,
        all_positions: bool = False,
        tap: Taps = None,
        intervention: Interventions = None,
    ) -> list[Tensor]:
        """Run all new tokens in one packed batch; each attends to the KV cache and encoder output of its sequence."""
        if not sequences:
            return []
        ids, ctx = pack_sequences(self.decoder_embedding, sequences, states, tap, intervention)
        for sequence, cache in zip(ctx.sequences, states, strict=True):
            assert cache.encoder_output is not None, "the state must come from new_state(source=ids)"
            self._set_encoder_output(sequence, cache.encoder_output, cache.encoder_padding_mask)
        hidden = self.decoder(self.decoder_embedding(ids, ctx), ctx)
        return select_logits(hidden, ctx, all_positions, self.logits)

    def _set_encoder_output(self, ctx: ForwardContext, encoder_output: Tensor, padding_mask: Tensor | None) -> None:
        ctx.encoder_output = encoder_output
        positions = ctx.mask_spec.key_positions.new_zeros(1, encoder_output.shape[1])
        ctx.cross_mask_spec = MaskSpec(
            ctx.mask_spec.query_positions, positions, causal=False, padding_mask=padding_mask
        )

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.lm_head(hidden_states, self.decoder_embedding.token.weight)
