"""`embed`: text embeddings and their cosine similarities."""

import json
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from peasy.atomic import write_atomic
from peasy.checkpoint.hub import Confirm
from peasy.checkpoint.loaded_model import Pooling
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import JsonDict, Result
from peasy.metrics.kmeans import unit_vectors
from peasy.views.document import Document, Matrix, Paragraph, Table, pluralize, short_title, shorten

_MAX_SHOWN = 24
"""Maximum number of rows and columns shown."""


class EmbedResult(Result, eq=False):
    """Result of `embed`: `vectors` is [text, d_model], also as `np.asarray(result)`; iterating yields them."""

    name: str
    texts: tuple[str, ...]
    vectors: NDArray[np.float32]
    pooling: str
    note: str | None = None

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[np.generic]:
        return np.array(self.vectors, dtype=dtype, copy=copy)

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return iter(self.vectors)

    @property
    def cosines(self) -> NDArray[np.float32]:
        """Cosine similarities of all pairs of texts, [text, text]."""
        unit = unit_vectors(self.vectors)
        return unit @ unit.T

    def save(self, path: str | Path) -> Path:
        """Write a file: .npy holds the vectors, .jsonl one line per text; other formats as every result."""
        suffix = Path(path).suffix.lower()
        if suffix == ".npy":
            buffer = BytesIO()
            np.save(buffer, self.vectors)
            return write_atomic(path, buffer.getvalue())
        if suffix == ".jsonl":
            rows = zip(self.texts, self.vectors.tolist(), strict=True)
            lines = (json.dumps({"text": text, "vector": vector}, ensure_ascii=False) for text, vector in rows)
            return write_atomic(path, "".join(f"{line}\n" for line in lines))
        return super().save(path)

    def document(self) -> Document:
        """Cosines of all pairs, or the vector of a single text."""
        texts, vectors = self.texts, self.vectors
        size = f"{pluralize(len(texts), 'text')}, {vectors.shape[1]} dimensions"
        note = f"{size}, pooling {self.pooling}, model {self.name}."
        if len(texts) == 1:
            rows = tuple((str(index), float(value)) for index, value in enumerate(vectors[0][:_MAX_SHOWN]))
            figure: Matrix | Table = Table(("dimension", "value"), rows)
            count, rest, title = len(vectors[0]), f"{vectors.shape[1]}; --json has all.", short_title(texts[0])
        else:
            labels = tuple(f"{index} {shorten(text, 28)}" for index, text in enumerate(texts[:_MAX_SHOWN], 1))
            columns = tuple(map(str, range(1, len(labels) + 1)))
            values, about = self.cosines[:_MAX_SHOWN, :_MAX_SHOWN].tolist(), "1: same direction; 0: orthogonal."
            cells, axes = tuple(map(tuple, values)), ("text", "text")
            figure = Matrix("Cosine similarity", cells, labels, columns, *axes, shaded=True, description=about)
            count, rest, title = len(texts), f"{len(texts):,}; --out vectors.npy has all.", "Similarity of texts"
        cut = [Paragraph(f"The first {_MAX_SHOWN} of {rest}", "note")] * (count > _MAX_SHOWN)
        parts = (figure, *cut, Paragraph(note, "note"))
        return Document(title, parts, decimals=4 if len(texts) == 1 else 2).with_note(self.note)

    def data(self) -> JsonDict:
        """Texts, vectors and cosines as plain data."""
        facts = {"model": self.name, "pooling": self.pooling, "texts": list(self.texts), "note": self.note}
        return facts | {"vectors": self.vectors.tolist(), "cosines": self.cosines.tolist()}

    def __repr__(self) -> str:
        return f"EmbedResult({len(self.texts)} texts, {self.vectors.shape[1]} dimensions, {self.pooling})"


def embed(
    model: str | Path | LoadedModel,
    texts: str | Sequence[str],
    *,
    pooling: Pooling | None = None,
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
) -> EmbedResult:
    """Embed one text or several, with their cosine similarities.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        texts: Texts to embed.
        pooling: Mean over tokens, first token (cls) or last token; default: the pooling of the encoder.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.checkpoint.model import save_model
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> from peasy.tokenization import train_tokenizer
    >>> tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, "words")
    >>> model = build(preset("encoder-tiny", vocab_size=len(tokenizer)), seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     _ = save_model(f"{folder}/cats", model, tokenizer)
    ...     result = embed(f"{folder}/cats", ["the cat", "the mat", "the cat"])
    >>> result.vectors.shape[0], round(float(result.cosines[0, 2]), 4)
    (3, 1.0)
    """
    loaded = load(model, device=device, offline=offline, confirm=confirm)
    many = (texts,) if isinstance(texts, str) else tuple(texts)
    pooling_name = pooling or str(getattr(loaded.model.config, "pooling", ""))
    vectors = loaded.embed_texts(list(many), pooling=pooling)
    note = loaded.truncation_note(loaded.num_truncated(many), len(many))
    return EmbedResult(loaded.name, many, vectors, pooling_name, note)
