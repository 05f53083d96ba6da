"""An experiment as a document: the question, what was measured, what came out, and what that does not show."""

from collections.abc import Sequence

from peasy.views.document import Document, Paragraph, Part, Table


def finding_document(
    name: str, question: str, parts: Sequence[Part], verdict: str, holds: bool, caveat: str, seed: int
) -> Document:
    """The question first, the verdict after the numbers it is made of."""
    told = Paragraph(verdict, "good" if holds else "bad")
    around = (Paragraph(question), *parts, told, Paragraph(caveat, "note"))
    return Document(f"Experiment {name}", around, settings=(f"seed: {seed}",))


def experiments_document(rows: Sequence[tuple[str, str, str]]) -> Document:
    """All experiments: name, question, how long it takes on two cores."""
    how = Paragraph("Each is run by name: peasy experiment NAME", "note")
    return Document("Experiments", (Table(("name", "question", "takes"), tuple(rows)), how))
