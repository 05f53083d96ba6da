"""Encoder-decoder: reads a source both ways, answers one token at a time."""

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
    """Figure 1: two stacks, the right one looks at the left one's result."""

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
        """The embedding of what is written: the source's own where they share one."""
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
        """Read the source once; the cache keeps what the decoder looks at."""
        if source is None:
            raise InvalidInput("This model answers a source, and there is none.", hint="Give source=ids.")
        cache = Cache.empty(self.decoder.windows, room)
        cache.source, cache.source_real = self.encode(source, real=source_real), padding_or_none(source_real)
        return cache

    def encode(
        self, source: Tensor, *, real: Tensor | None = None, tap: Tap | None = None, edit: Edit | None = None
    ) -> Tensor:
        """The source's vectors, `[batch, time, d_model]`."""
        scene = set_scene(self.embedding, source, real, causal=False, tap=tap, edit=edit)
        return self.encoder(self.embedding(source, scene), scene)

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
        """The last vector of every target token; with a cache from `start`, the source is known already."""
        scene = set_scene(self.writing, ids, real, causal=True, cache=cache, tap=tap, edit=edit)
        if cache is not None and cache.source is not None:
            self._point(scene, cache.source, cache.source_real)
        elif source is not None:
            self._point(scene, self.encode(source, real=source_real, tap=tap, edit=edit), padding_or_none(source_real))
        else:
            raise InvalidInput("This model answers a source, and there is none.", hint="Give source=ids.")
        return self.decoder(self.writing(ids, scene), scene)

    def read(
        self,
        texts: Sequence[Sequence[int]],
        memories: Sequence[Cache],
        *,
        every: bool = False,
        tap: Taps = None,
        edit: Edits = None,
    ) -> list[Tensor]:
        """All new tokens in one row; each looks into its own text's memory and at its own source."""
        if not texts:
            return []
        ids, scene = stand_side_by_side(self.writing, texts, memories, tap, edit)
        for text, memory in zip(scene.texts, memories, strict=True):
            assert memory.source is not None, "a memory of this model comes from start(source=ids)"
            self._point(text, memory.source, memory.source_real)
        hidden = self.decoder(self.writing(ids, scene), scene)
        return last_or_every(hidden, scene, every, self.scores)

    def _point(self, scene: Scene, source: Tensor, real: Tensor | None) -> None:
        scene.source = source
        places = scene.sight.key.new_zeros(1, source.shape[1])
        scene.source_sight = Sight(scene.sight.query, places, causal=False, real=real)

    def scores(self, hidden: Tensor) -> Tensor:
        """Scores of the next token."""
        return self.head(hidden, self.writing.token.weight)
