"""A translation, ready to be shown: the text, and others that were found."""

from dataclasses import dataclass

from peasy.views.document import Document, Paragraph, Part, Table


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


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."
