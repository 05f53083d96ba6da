"""A translation, ready to be shown: the text, others that were found, and which token came from which."""

from dataclasses import dataclass

import numpy as np

from peasy.views.document import Document, Heading, Links, Matrix, Paragraph, Part, Table


@dataclass(frozen=True)
class Translated:
    """One text that was found for a source: its score is its log-probability, by length where beams are compared."""

    text: str
    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    score: float
    logprob: float


def translations_document(rows: tuple[tuple[str, tuple[Translated, ...], str | None], ...], note: str) -> Document:
    """Sources with their translations, best first; (source, what was found, what went wrong)."""
    if len(rows) == 1:
        source, found, error = rows[0]
        return Document(_title(source), (*_one(found, error), Paragraph(note, "note")))
    table = Table(("source", "translation"), tuple((s, e or (f[0].text if f else "")) for s, f, e in rows))
    return Document("Translations", (table, Paragraph(note, "note")))


def _one(found: tuple[Translated, ...], error: str | None) -> list[Part]:
    if error is not None:
        return [Paragraph(error, "bad")]
    parts: list[Part] = [Paragraph(found[0].text)]
    if len(found) > 1:
        rows = tuple((str(i + 1), one.text, f"{one.score:.4f}", f"{one.logprob:.4f}") for i, one in enumerate(found))
        parts.append(Table(("", "translation", "score", "log-probability"), rows, "What was found"))
    return parts


def alignment_parts(
    source: tuple[str, ...], target: tuple[str, ...], weights: np.ndarray, says: str
) -> tuple[Part, ...]:
    """Where the model looked while it wrote each token: bands between the two texts, and all weights as a table."""
    marks = frozenset((row, int(weights[row].argmax())) for row in range(len(target)))
    return (
        Heading("Alignment"),
        Links(
            "Which came from which", target, source, weights, left_axis="written", right_axis="source", says=says,
            ribbons=True,
        ),
        Matrix(
            "Weights", tuple(tuple(float(cell) for cell in row) for row in weights), target, source, "written",
            "source", says=says, shaded=True, marks=marks,
        ),
        Paragraph("Weights show where the model looked while it wrote, not why it chose the word.", "note"),
    )  # fmt: skip


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."
