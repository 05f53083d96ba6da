"""Text embeddings as a document: cosine similarities, or the vector of a single text."""

import numpy as np

from peasy.views.document import Document, Matrix, Paragraph, Table

MAX_SHOWN = 24
"""Maximum number of rows and columns shown."""


def vectors_document(
    name: str, texts: tuple[str, ...], vectors: np.ndarray, cosines: np.ndarray, pooling: str
) -> Document:
    """Document with the cosine similarity matrix; for a single text, its vector."""
    note = (
        f"{len(texts):,} text{'s' * (len(texts) != 1)}, {vectors.shape[1]} dimensions, pooling {pooling}, model {name}."
    )
    if len(texts) == 1:
        rows = tuple((str(index), float(value)) for index, value in enumerate(vectors[0][:MAX_SHOWN]))
        cut = [Paragraph(f"The first {MAX_SHOWN} of {vectors.shape[1]}; --json has all.", "note")] * (
            len(vectors[0]) > MAX_SHOWN
        )
        return Document(_truncate(texts[0], 60), (Table(("dimension", "value"), rows), *cut, Paragraph(note, "note")))
    shown = texts[:MAX_SHOWN]
    labels = tuple(f"{index + 1} {_truncate(text, 28)}" for index, text in enumerate(shown))
    columns = tuple(str(index + 1) for index in range(len(shown)))
    values = tuple(tuple(float(cell) for cell in row[:MAX_SHOWN]) for row in cosines[:MAX_SHOWN])
    table = Matrix(
        "Cosine similarity", values, labels, columns, "text", "text", shaded=True,
        description="1: same direction; 0: orthogonal.",
    )  # fmt: skip
    cut = [Paragraph(f"The first {MAX_SHOWN} of {len(texts):,}; --out vectors.npy has all.", "note")] * (
        len(texts) > MAX_SHOWN
    )
    return Document("Similarity of texts", (table, *cut, Paragraph(note, "note")), decimals=2)


def _truncate(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
