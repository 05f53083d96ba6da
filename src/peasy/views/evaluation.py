"""How good a model is, as a document: the measures in words and numbers, by category, and what went wrong."""

from dataclasses import dataclass, field

from peasy.views.document import Cell, Document, Heading, Paragraph, Part, Table


@dataclass(frozen=True)
class Measure:
    """One measure: its name, its value, what it says in words; `share` = it is a share of 1, said in percent."""

    name: str
    value: float
    says: str
    share: bool = False


@dataclass(frozen=True)
class EvaluationFacts:
    """What an evaluation found. `categories` are (name, right, asked); `wrong` (source, wanted, written)."""

    model: str
    data: str
    split: str
    counted: str
    measures: tuple[Measure, ...]
    categories: tuple[tuple[str, int, int], ...] = ()
    wrong: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())


def evaluation_document(facts: EvaluationFacts) -> Document:
    """The measures first, then the categories, then some answers that were not right."""
    rows: tuple[tuple[Cell, ...], ...] = tuple((m.name, _value(m), m.says) for m in facts.measures)
    parts: list[Part] = [
        Paragraph(f"{facts.data}, {_split(facts.split)}: {facts.counted}."),
        Table(("measure", "value", "says"), rows),
    ]
    if len(facts.categories) > 1:
        shares = tuple((name or "other", f"{right / asked:.1%}", f"{right:,} of {asked:,}")
                       for name, right, asked in facts.categories)  # fmt: skip
        parts += [Heading("By category"), Table(("category", "right", "count"), shares)]
    if facts.wrong:
        parts += [
            Heading("Not right"),
            Table(("source", "wanted", "written"), tuple(tuple(map(_short, row)) for row in facts.wrong)),
        ]
    parts += [Paragraph(note, "note") for note in facts.notes]
    return Document(f"{facts.model} on {facts.data}", tuple(parts))


def _value(measure: Measure) -> str:
    if measure.share:
        return f"{measure.value:.2%}"
    return f"{measure.value:,.2f}" if abs(measure.value) >= 10 else f"{measure.value:.4f}"


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _split(split: str) -> str:
    return {"valid": "what was held out", "train": "what was learned from", "all": "all of it"}.get(split, split)
