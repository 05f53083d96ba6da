"""Training plan as a document: estimated time, memory and throughput, with the formulas."""

from dataclasses import dataclass, field

from peasy.views.document import Arithmetic, Document, DocumentPart, Heading, Paragraph, Table


@dataclass(frozen=True)
class PlanFacts:
    """Training plan: `rows` are (quantity, value, basis); `formulas` are (title, lines of arithmetic)."""

    title: str
    description: str
    rows: tuple[tuple[str, str, str], ...]
    formulas: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = field(default=())
    verdict: tuple[str, bool] | None = None


def plan_document(facts: PlanFacts) -> Document:
    """Document with the table, whether it fits in memory, and the formulas with their numbers."""
    parts: list[DocumentPart] = [Paragraph(facts.description), Table(("quantity", "value", "basis"), facts.rows)]
    if facts.verdict is not None:
        text, good = facts.verdict
        parts.append(Paragraph(text, "good" if good else "bad"))
    if facts.formulas:
        parts.append(Heading("Formulas"))
        parts += [Arithmetic(title, lines) for title, lines in facts.formulas]
    parts += [Paragraph(note, "note") for note in facts.notes]
    return Document(facts.title, tuple(parts))
