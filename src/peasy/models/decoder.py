"""Decoder-only Transformer: causal language model."""

from torch import Tensor

from peasy.models.config import DecoderConfig
from peasy.models.protocol import ModelInputs
from peasy.models.transformer import CausalTransformer, make_context
from peasy.nn.embedding import Embedding
from peasy.nn.kv_cache import KVCache
from peasy.nn.lm_head import LMHead
from peasy.nn.stack import Stack


class Decoder(CausalTransformer):
    """Causal Transformer: embedding, blocks, LM head."""

    config: DecoderConfig

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        c, norm = config, config.stack.norm
        self.embedding = Embedding(c.vocab_size, c.d_model, c.embedding, c.position, norm, c.max_seq_len, c.dropout)
        self.decoder = Stack("decoder", c.d_model, c.stack, c.position, causal=True, dropout=c.dropout)
        self.lm_head = LMHead(c.vocab_size, c.d_model, c.lm_head, norm)

    @property
    def decoder_embedding(self) -> Embedding:
        """Token embedding of the decoder."""
        return self.embedding

    def _hidden(self, ids: Tensor, inputs: ModelInputs[KVCache]) -> Tensor:
        ctx = make_context(self.embedding, ids, inputs, causal=True)
        return self.decoder(self.embedding(ids, ctx), ctx)
