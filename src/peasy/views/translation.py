"""Translations as a document: the best hypothesis and the others of the beam search."""

from dataclasses import dataclass

from peasy.views.document import Document, DocumentPart, Paragraph, Table


@dataclass(frozen=True)
class TranslationHypothesis:
    """Translation hypothesis: `score` is its log-probability, length-normalised in beam search."""

    text: str
    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    score: float
    logprob: float


def translations_document(
    rows: tuple[tuple[str, tuple[TranslationHypothesis, ...], str | None], ...], note: str
) -> Document:
    """Document of sources with their translations, best first; rows are (source, hypotheses, error)."""
    if len(rows) == 1:
        source, hypotheses, error = rows[0]
        return Document(_title(source), (*_hypothesis_parts(hypotheses, error), Paragraph(note, "note")))
    texts = tuple((source, error or (best[0].text if best else "")) for source, best, error in rows)
    table = Table(("source", "translation"), texts)
    return Document("Translations", (table, Paragraph(note, "note")))


def _hypothesis_parts(hypotheses: tuple[TranslationHypothesis, ...], error: str | None) -> list[DocumentPart]:
    if error is not None:
        return [Paragraph(error, "bad")]
    parts: list[DocumentPart] = [Paragraph(hypotheses[0].text)]
    if len(hypotheses) > 1:
        rows = tuple(
            (str(i + 1), hyp.text, f"{hyp.score:.4f}", f"{hyp.logprob:.4f}") for i, hyp in enumerate(hypotheses)
        )
        parts.append(Table(("", "translation", "score", "log-probability"), rows, "Hypotheses"))
    return parts


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."
