"""Encoder-decoder Transformer: bidirectional encoder, causal decoder with cross-attention."""

from torch import Tensor

from peasy.models.config import EncoderDecoderConfig
from peasy.models.protocol import ModelInputs, require_source
from peasy.models.transformer import CausalTransformer, make_context, normalize_padding_mask, set_encoder_output
from peasy.nn.embedding import Embedding
from peasy.nn.intervention import InterventionLike
from peasy.nn.kv_cache import KVCache
from peasy.nn.lm_head import LMHead
from peasy.nn.stack import Stack
from peasy.nn.tap import Tap


class EncoderDecoder(CausalTransformer):
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

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> KVCache:
        """Encode the source and return a KV cache that holds the encoder output."""
        cache = KVCache.empty(self.decoder.windows, capacity)
        cache.encoder_output = self.encode(require_source(source), padding_mask=source_padding_mask)
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
        inputs = ModelInputs[KVCache](padding_mask, tap=tap, intervention=intervention)
        ctx = make_context(self.embedding, source, inputs, causal=False)
        return self.encoder(self.embedding(source, ctx), ctx)

    def _hidden(self, ids: Tensor, inputs: ModelInputs[KVCache]) -> Tensor:
        """Return the decoder's hidden states; a cache from `new_state` already holds the encoder output."""
        ctx = make_context(self.decoder_embedding, ids, inputs, causal=True)
        if ctx.encoder_output is None:
            source, mask = require_source(inputs.source), inputs.source_padding_mask
            encoded = self.encode(source, padding_mask=mask, tap=inputs.tap, intervention=inputs.intervention)
            set_encoder_output(ctx, encoded, normalize_padding_mask(mask))
        return self.decoder(self.decoder_embedding(ids, ctx), ctx)
