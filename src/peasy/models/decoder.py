"""Decoder-only Transformer: causal language model."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from peasy.models.config import DecoderConfig
from peasy.models.protocol import Edits, Model, Taps
from peasy.models.transformer import last_or_every, set_scene, stand_side_by_side
from peasy.nn.cache import Cache
from peasy.nn.embedding import Embedding
from peasy.nn.head import Head
from peasy.nn.scene import Edit
from peasy.nn.stack import Stack
from peasy.nn.tap import Tap


class Decoder(Model):
    """Causal Transformer: embedding, blocks, LM head."""

    config: DecoderConfig

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        norm = config.stack.norm
        self.embedding = Embedding(
            config.vocabulary, config.d_model, config.embedding, config.position, norm, config.context, config.dropout
        )
        self.decoder = Stack(
            "decoder", config.d_model, config.stack, config.position, causal=True, dropout=config.dropout
        )
        self.head = Head(config.vocabulary, config.d_model, config.head, norm)

    def start(self, batch: int = 1, *, room: int = 0, **source: Any) -> Cache:
        """Return an empty KV cache."""
        return Cache.empty(self.decoder.windows, room)

    def hidden(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        cache: Cache | None = None,
        tap: Tap | None = None,
        edit: Edit | None = None,
        **source: Any,
    ) -> Tensor:
        """Return the hidden states of the last layer."""
        ctx = set_scene(self.embedding, ids, real, causal=True, cache=cache, tap=tap, edit=edit)
        return self.decoder(self.embedding(ids, ctx), ctx)

    def read(
        self,
        texts: Sequence[Sequence[int]],
        memories: Sequence[Cache],
        *,
        every: bool = False,
        tap: Taps = None,
        edit: Edits = None,
    ) -> list[Tensor]:
        """Run all new tokens in one packed batch; each attends to the KV cache of its sequence."""
        if not texts:
            return []
        ids, ctx = stand_side_by_side(self.embedding, texts, memories, tap, edit)
        hidden = self.decoder(self.embedding(ids, ctx), ctx)
        return last_or_every(hidden, ctx, every, self.scores)

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.head(hidden, self.embedding.token.weight)
