"""Evaluation of a model as a document: metrics, accuracy by category, wrong outputs."""

from dataclasses import dataclass, field

from peasy.views.document import Cell, Document, Heading, Paragraph, Part, Table


@dataclass(frozen=True)
class Measure:
    """Metric: name, value and description; `share`: a fraction of 1, shown in percent."""

    name: str
    value: float
    says: str
    share: bool = False


@dataclass(frozen=True)
class EvaluationFacts:
    """Results of an evaluation. `categories` are (name, correct, count); `wrong` (source, reference, output)."""

    model: str
    data: str
    split: str
    counted: str
    measures: tuple[Measure, ...]
    categories: tuple[tuple[str, int, int], ...] = ()
    wrong: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())


def evaluation_document(facts: EvaluationFacts) -> Document:
    """Document with the metrics, the categories, and some wrong outputs."""
    rows: tuple[tuple[Cell, ...], ...] = tuple((metric.name, _value(metric), metric.says) for metric in facts.measures)
    parts: list[Part] = [
        Paragraph(f"{facts.data}, {_split(facts.split)}: {facts.counted}."),
        Table(("metric", "value", "description"), rows),
    ]
    if len(facts.categories) > 1:
        rates = tuple((name or "other", f"{correct / count:.1%}", f"{correct:,} of {count:,}")
                      for name, correct, count in facts.categories)  # fmt: skip
        parts += [Heading("By category"), Table(("category", "accuracy", "count"), rates)]
    if facts.wrong:
        parts += [
            Heading("Wrong outputs"),
            Table(("source", "reference", "output"), tuple(tuple(map(_short, row)) for row in facts.wrong)),
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
    return {"valid": "validation split", "train": "training split", "test": "test split", "all": "all data"}.get(
        split, split
    )
