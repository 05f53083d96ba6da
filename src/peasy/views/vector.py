"""Vectors of texts, ready to be shown: how near each is to each, or the numbers of a single one."""

import numpy as np

from peasy.views.document import Document, Matrix, Paragraph, Table

MOST = 24
"""A larger table of cosines is cut, and says so."""


def vectors_document(
    name: str, texts: tuple[str, ...], vectors: np.ndarray, cosines: np.ndarray, pooling: str
) -> Document:
    """The table of cosines; for a single text its vector."""
    note = (
        f"{len(texts):,} text{'s' * (len(texts) != 1)}, {vectors.shape[1]} numbers each, pooling {pooling}, by {name}."
    )
    if len(texts) == 1:
        rows = tuple((str(place), float(number)) for place, number in enumerate(vectors[0][:MOST]))
        cut = [Paragraph(f"The first {MOST} of {vectors.shape[1]}; --json has all.", "note")] * (len(vectors[0]) > MOST)
        return Document(_short(texts[0], 60), (Table(("place", "number"), rows), *cut, Paragraph(note, "note")))
    shown = texts[:MOST]
    labels = tuple(f"{place + 1} {_short(text, 28)}" for place, text in enumerate(shown))
    columns = tuple(str(place + 1) for place in range(len(shown)))
    values = tuple(tuple(float(cell) for cell in row[:MOST]) for row in cosines[:MOST])
    table = Matrix(
        "Cosines", values, labels, columns, "text", "text", shaded=True,
        says="1 = they point the same way, 0 = they have nothing in common.",
    )  # fmt: skip
    cut = [Paragraph(f"The first {MOST} of {len(texts):,}; --out vectors.npy has all.", "note")] * (len(texts) > MOST)
    return Document("How near texts are", (table, *cut, Paragraph(note, "note")), decimals=2)


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
