"""Experiment as a document: question, measurements, verdict, caveat."""

from collections.abc import Sequence

from peasy.views.document import Document, DocumentPart, Paragraph, Table


def experiment_document(
    name: str, question: str, parts: Sequence[DocumentPart], verdict: str, holds: bool, caveat: str, seed: int
) -> Document:
    """Document with the question, the measurements, the verdict and the caveat."""
    conclusion = Paragraph(verdict, "good" if holds else "bad")
    whole = (Paragraph(question), *parts, conclusion, Paragraph(caveat, "note"))
    return Document(f"Experiment {name}", whole, settings=(f"seed: {seed}",))


def experiments_document(rows: Sequence[tuple[str, str, str]]) -> Document:
    """Document listing all experiments: name, question, duration on two cores."""
    usage = Paragraph("Run one: peasy experiment NAME", "note")
    return Document("Experiments", (Table(("name", "question", "duration"), tuple(rows)), usage))
