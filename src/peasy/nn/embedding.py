"""Token embedding with n-grams, positions, segments and norm."""

from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.nn import part
from peasy.nn.norm import make_norm
from peasy.nn.position import sinusoids
from peasy.nn.scene import Scene
from peasy.nn.shift import before


class Embedding(nn.Module):
    """Embedding of token ids, plus position, segment and n-gram embeddings."""

    def __init__(
        self,
        vocabulary: int,
        d_model: int,
        settings: part.Embedding,
        position: part.Position | None,
        norm: part.Norm,
        context: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.places, self.context = position, context
        self.factor = d_model**0.5 if settings.scaled else 1.0
        self.token = nn.Embedding(vocabulary, d_model)
        self.position = None
        if isinstance(position, part.Learned):
            assert context is not None, "learned positions need a maximum length"
            self.position = nn.Embedding(context + position.offset, d_model)
        tables = [nn.Embedding(settings.buckets, d_model) for _ in range(settings.ngrams - 1)]
        self.ngram = nn.ModuleList(tables) if tables else None
        self.segment = nn.Embedding(settings.segments, d_model) if settings.segments else None
        self.norm = make_norm(norm, d_model) if settings.norm else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, scene: Scene, segments: Tensor | None = None) -> Tensor:
        """Embed `ids` `[batch, time]` at the query positions of the context: `[batch, time, d_model]`."""
        x = self.token(ids) if self.ngram is None else self._together(ids, scene, self.ngram)
        if self.factor != 1.0:
            x = x * self.factor
        if self.segment is not None:
            x = x + (self.segment.weight[0] if segments is None else self.segment(segments))
        x = self._placed(x, scene.sight.query)
        return self.dropout(x if self.norm is None else self.norm(x))

    def says(self) -> str:
        """Return a one-line summary."""
        positions = "" if self.places is None else f", {self.places.kind} positions"
        ngrams = "" if self.ngram is None else f", n-grams of up to {len(self.ngram) + 1} tokens"
        return f"token ids to vectors{ngrams}{positions}"

    def _together(self, ids: Tensor, scene: Scene, tables: nn.ModuleList) -> Tensor:
        """Sum the vectors of each token and of the n-grams ending at it; ids are shifted by 1, 0 = before the start."""
        x, base = self.token(ids), self.token.num_embeddings + 1
        ngram_ids = earlier = ids + 1
        for length, table in enumerate(tables, 2):
            earlier = before(earlier[..., None], scene, 0, f"{length}-gram")[..., 0]
            ngram_ids = ngram_ids * base + earlier
            assert isinstance(table, nn.Embedding)
            x = x + table(ngram_ids % table.num_embeddings)
        return x

    def _placed(self, x: Tensor, places: Tensor) -> Tensor:
        if self.position is not None:
            assert isinstance(self.places, part.Learned)
            return x + self.position(places + self.places.offset)
        if isinstance(self.places, part.Sinusoidal):
            return x + sinusoids(places, x.shape[-1], self.places.layout).to(x.dtype)
        return x

    def check_length(self, length: int) -> None:
        """Raise if a sequence is longer than the learned position table."""
        if self.position is not None and self.context is not None and length > self.context:
            raise InvalidInput(
                f"The text has {length} tokens; this model reads at most {self.context}.",
                hint="Shorten the text, or choose a model with a longer context.",
            )
