"""What a run will need and how long it will take, as a document; on paper, with every formula shown."""

from dataclasses import dataclass, field

from peasy.views.document import Arithmetic, Document, Heading, Paragraph, Part, Table


@dataclass(frozen=True)
class PlanFacts:
    """What a plan says: `rows` are (what, how much, how it is known); `sums` are (title, lines of arithmetic)."""

    title: str
    says: str
    rows: tuple[tuple[str, str, str], ...]
    sums: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = field(default=())
    verdict: tuple[str, bool] | None = None


def plan_document(facts: PlanFacts) -> Document:
    """The table, whether it fits, then the formulas with their numbers."""
    parts: list[Part] = [Paragraph(facts.says), Table(("what", "how much", "how it is known"), facts.rows)]
    if facts.verdict is not None:
        text, good = facts.verdict
        parts.append(Paragraph(text, "good" if good else "bad"))
    if facts.sums:
        parts.append(Heading("The formulas"))
        parts += [Arithmetic(title, lines) for title, lines in facts.sums]
    parts += [Paragraph(note, "note") for note in facts.notes]
    return Document(facts.title, tuple(parts))
