"""Encoder-decoder Transformer: bidirectional encoder, causal decoder with cross-attention."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from peasy.errors import InvalidInput
from peasy.models.config import EncoderDecoderConfig
from peasy.models.protocol import Edits, Model, Taps
from peasy.models.transformer import last_or_every, padding_or_none, set_scene, stand_side_by_side
from peasy.nn.cache import Cache
from peasy.nn.embedding import Embedding
from peasy.nn.head import Head
from peasy.nn.scene import Edit, Scene
from peasy.nn.sight import Sight
from peasy.nn.stack import Stack
from peasy.nn.tap import Tap


class EncoderDecoder(Model):
    """Transformer of figure 1: encoder stack, decoder stack with cross-attention, LM head."""

    config: EncoderDecoderConfig
    reads_source = True

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__(config)
        self.embedding = self._make_embedding(config.vocabulary)
        self.target_embedding = self._make_embedding(config.target_vocabulary) if config.target_vocabulary else None
        self.encoder = Stack(
            "encoder", config.d_model, config.encoder, config.position, causal=False, dropout=config.dropout
        )
        self.decoder = Stack(
            "decoder", config.d_model, config.decoder, config.position, causal=True, cross=True, dropout=config.dropout
        )
        self.head = Head(
            config.target_vocabulary or config.vocabulary, config.d_model, config.head, config.decoder.norm
        )

    def _make_embedding(self, vocabulary: int) -> Embedding:
        c = self.config
        return Embedding(vocabulary, c.d_model, c.embedding, c.position, c.encoder.norm, c.context, c.dropout)

    @property
    def writing(self) -> Embedding:
        """Target embedding; the source embedding if they are shared."""
        return self.target_embedding or self.embedding

    def start(
        self,
        batch: int = 1,
        *,
        room: int = 0,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        **_: Any,
    ) -> Cache:
        """Encode the source and return a KV cache that holds the encoder output."""
        if source is None:
            raise InvalidInput("This model needs a source sequence, but none was given.", hint="Pass source=ids.")
        cache = Cache.empty(self.decoder.windows, room)
        cache.source, cache.source_real = self.encode(source, real=source_real), padding_or_none(source_real)
        return cache

    def encode(
        self, source: Tensor, *, real: Tensor | None = None, tap: Tap | None = None, edit: Edit | None = None
    ) -> Tensor:
        """Return the encoder output, `[batch, time, d_model]`."""
        ctx = set_scene(self.embedding, source, real, causal=False, tap=tap, edit=edit)
        return self.encoder(self.embedding(source, ctx), ctx)

    def hidden(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        cache: Cache | None = None,
        tap: Tap | None = None,
        edit: Edit | None = None,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """Return the decoder's hidden states; a cache from `new_state` already holds the encoder output."""
        ctx = set_scene(self.writing, ids, real, causal=True, cache=cache, tap=tap, edit=edit)
        if cache is not None and cache.source is not None:
            self._point(ctx, cache.source, cache.source_real)
        elif source is not None:
            self._point(ctx, self.encode(source, real=source_real, tap=tap, edit=edit), padding_or_none(source_real))
        else:
            raise InvalidInput("This model needs a source sequence, but none was given.", hint="Pass source=ids.")
        return self.decoder(self.writing(ids, ctx), ctx)

    def read(
        self,
        texts: Sequence[Sequence[int]],
        memories: Sequence[Cache],
        *,
        every: bool = False,
        tap: Taps = None,
        edit: Edits = None,
    ) -> list[Tensor]:
        """Run all new tokens in one packed batch; each attends to the KV cache and encoder output of its sequence."""
        if not texts:
            return []
        ids, ctx = stand_side_by_side(self.writing, texts, memories, tap, edit)
        for sequence, cache in zip(ctx.texts, memories, strict=True):
            assert cache.source is not None, "the state must come from start(source=ids)"
            self._point(sequence, cache.source, cache.source_real)
        hidden = self.decoder(self.writing(ids, ctx), ctx)
        return last_or_every(hidden, ctx, every, self.scores)

    def _point(self, scene: Scene, source: Tensor, real: Tensor | None) -> None:
        scene.source = source
        positions = scene.sight.key.new_zeros(1, source.shape[1])
        scene.source_sight = Sight(scene.sight.query, positions, causal=False, real=real)

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.head(hidden, self.writing.token.weight)
