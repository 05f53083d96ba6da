"""Experiments as documents: one with its claim and measurements, and the list of all."""

from collections.abc import Sequence

from peasy.views.document import Document, DocumentPart, Paragraph, Table


def experiment_document(
    name: str,
    claim: str,
    question: str,
    parts: Sequence[DocumentPart],
    caveat: str,
    seed: int,
) -> Document:
    """Document with the claim, its question, the measurements with their verdict, and the caveat."""
    whole = (Paragraph(f"Claim: {claim}", "main"), Paragraph(question), *parts, Paragraph(caveat, "note"))
    return Document(f"Experiment {name}", whole, settings=(f"seed: {seed}",))


def experiments_document(rows: Sequence[tuple[str, str, str, str]]) -> Document:
    """Document listing all experiments: name, question, duration on two cores, outcome of the stored seeds."""
    usage = Paragraph("Run one: peasy experiment NAME", "note")
    return Document("Experiments", (Table(("name", "question", "duration", "stored seeds"), tuple(rows)), usage))
