"""Decoder-only: looks back, predicts the next token."""

from typing import Any

from torch import Tensor

from peasy.models.config import DecoderConfig
from peasy.models.protocol import Model
from peasy.models.transformer import set_scene
from peasy.nn.cache import Cache
from peasy.nn.embedding import Embedding
from peasy.nn.head import Head
from peasy.nn.scene import Edit
from peasy.nn.stack import Stack
from peasy.nn.tap import Tap


class Decoder(Model):
    """Embedding, blocks that only look back, head."""

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
        """An empty cache."""
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
        """The last vector of every token."""
        scene = set_scene(self.embedding, ids, real, causal=True, cache=cache, tap=tap, edit=edit)
        return self.decoder(self.embedding(ids, scene.sight.query), scene)

    def scores(self, hidden: Tensor) -> Tensor:
        """Scores of the next token."""
        return self.head(hidden, self.embedding.token.weight)
