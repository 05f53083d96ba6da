"""Text embeddings as a document: cosine similarities, or the vector of a single text."""

import numpy as np

from peasy.views.document import Document, Matrix, Paragraph, Table

MOST = 24
"""Maximum number of rows and columns shown."""


def vectors_document(
    name: str, texts: tuple[str, ...], vectors: np.ndarray, cosines: np.ndarray, pooling: str
) -> Document:
    """Document with the cosine similarity matrix; for a single text, its vector."""
    note = (
        f"{len(texts):,} text{'s' * (len(texts) != 1)}, {vectors.shape[1]} dimensions, pooling {pooling}, model {name}."
    )
    if len(texts) == 1:
        rows = tuple((str(index), float(value)) for index, value in enumerate(vectors[0][:MOST]))
        cut = [Paragraph(f"The first {MOST} of {vectors.shape[1]}; --json has all.", "note")] * (len(vectors[0]) > MOST)
        return Document(_short(texts[0], 60), (Table(("dimension", "value"), rows), *cut, Paragraph(note, "note")))
    shown = texts[:MOST]
    labels = tuple(f"{index + 1} {_short(text, 28)}" for index, text in enumerate(shown))
    columns = tuple(str(index + 1) for index in range(len(shown)))
    values = tuple(tuple(float(cell) for cell in row[:MOST]) for row in cosines[:MOST])
    table = Matrix(
        "Cosine similarity", values, labels, columns, "text", "text", shaded=True,
        says="1: same direction; 0: orthogonal.",
    )  # fmt: skip
    cut = [Paragraph(f"The first {MOST} of {len(texts):,}; --out vectors.npy has all.", "note")] * (len(texts) > MOST)
    return Document("Similarity of texts", (table, *cut, Paragraph(note, "note")), decimals=2)


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
