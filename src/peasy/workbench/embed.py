"""`embed`: texts into vectors, and how near they are to each other."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from peasy import render
from peasy.checkpoint.hub import Ask
from peasy.views.document import Document
from peasy.views.vector import vectors_document
from peasy.workbench.embedding import Pooling
from peasy.workbench.load import LoadedModel, load
from peasy.workbench.result import Result

SUFFIXES = ("npy", "jsonl")
"""What vectors can be saved as, besides what every result can."""


@dataclass(frozen=True, repr=False, eq=False)
class EmbedResult(Result):
    """One vector for each text: `vectors` is [text, d_model]; `np.asarray(result)` is the same."""

    name: str
    texts: tuple[str, ...]
    vectors: np.ndarray
    pooling: str

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.vectors, dtype=dtype, copy=copy)

    @property
    def cosines(self) -> np.ndarray:
        """How near each text is to each: the cosine of their vectors, [text, text]."""
        unit = self.vectors / np.maximum(np.linalg.norm(self.vectors, axis=1, keepdims=True), 1e-12)
        return unit @ unit.T

    def save(self, path: str | Path) -> Path:
        """Write a file: .npy holds the vectors, .jsonl a line for each text; all others as every result."""
        suffix = Path(path).suffix.lower()
        if suffix == ".npy":
            held = BytesIO()
            np.save(held, self.vectors)
            return render.write(path, held.getvalue())
        if suffix == ".jsonl":
            rows = zip(self.texts, self.vectors.tolist(), strict=True)
            lines = (json.dumps({"text": text, "vector": vector}, ensure_ascii=False) for text, vector in rows)
            return render.write(path, "".join(f"{line}\n" for line in lines))
        return super().save(path)

    def document(self) -> Document:
        """The cosines of all pairs; a single text shows its vector."""
        return vectors_document(self.name, self.texts, self.vectors, self.cosines, self.pooling)

    def data(self) -> dict[str, Any]:
        """Texts, vectors and cosines."""
        facts = {"model": self.name, "pooling": self.pooling, "texts": list(self.texts)}
        return facts | {"vectors": self.vectors.tolist(), "cosines": self.cosines.tolist()}

    def __repr__(self) -> str:
        return f"EmbedResult({len(self.texts)} texts, {self.vectors.shape[1]} numbers each, {self.pooling})"


def embed(
    model: str | Path | LoadedModel,
    texts: str | Sequence[str],
    *,
    pooling: Pooling | None = None,
    device: str = "auto",
    offline: bool = False,
    ask: Ask | None = None,
) -> EmbedResult:
    """The vector of a text, or of each of many, and how near they are to each other.

    `pooling` "mean", "cls" or "last"; an encoder has its own, models of other kinds need one.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.checkpoint.model import save_model
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> from peasy.text import train
    >>> words = train(["the cat sat on the mat"] * 9, "words")
    >>> with TemporaryDirectory() as place:
    ...     _ = save_model(f"{place}/cats", build(preset("encoder-tiny", vocabulary=len(words)), seed=1), words)
    ...     found = embed(f"{place}/cats", ["the cat", "the mat", "the cat"])
    >>> found.vectors.shape[0], round(float(found.cosines[0, 2]), 4)
    (3, 1.0)
    """
    loaded = model if isinstance(model, LoadedModel) else load(model, device=device, offline=offline, ask=ask)
    rows = (texts,) if isinstance(texts, str) else tuple(texts)
    said = pooling or str(getattr(loaded.model.config, "pooling", ""))
    return EmbedResult(loaded.name, rows, loaded.embed(list(rows), pooling=pooling), said)
