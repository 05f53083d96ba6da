"""`embed`: text embeddings and their cosine similarities."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from peasy.atomic import write_atomic
from peasy.checkpoint.hub import Confirm
from peasy.checkpoint.loaded_model import Pooling
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import Result
from peasy.views.document import Document
from peasy.views.vector import vectors_document

VECTOR_SUFFIXES = ("npy", "jsonl")
"""File formats of vectors, besides those of every result."""


@dataclass(frozen=True, repr=False, eq=False)
class EmbedResult(Result):
    """Result of `embed`: `vectors` is [text, d_model], also as `np.asarray(result)`."""

    name: str
    texts: tuple[str, ...]
    vectors: np.ndarray
    pooling: str

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.vectors, dtype=dtype, copy=copy)

    @property
    def cosines(self) -> np.ndarray:
        """Cosine similarities of all pairs of texts, [text, text]."""
        unit = self.vectors / np.maximum(np.linalg.norm(self.vectors, axis=1, keepdims=True), 1e-12)
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
        return vectors_document(self.name, self.texts, self.vectors, self.cosines, self.pooling)

    def data(self) -> dict[str, Any]:
        """Texts, vectors and cosines as plain data."""
        facts = {"model": self.name, "pooling": self.pooling, "texts": list(self.texts)}
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

    `pooling` is "mean", "cls" or "last"; an encoder has a default, other kinds of model need it.

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
    return EmbedResult(loaded.name, many, loaded.embed(list(many), pooling=pooling), pooling_name)
