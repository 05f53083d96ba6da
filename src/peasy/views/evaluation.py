"""Evaluation of a model as a document: metrics, accuracy by category, wrong outputs."""

from dataclasses import dataclass, field

from peasy.views.document import Cell, Document, DocumentPart, Heading, Paragraph, Table


@dataclass(frozen=True)
class EvaluationMetric:
    """Metric: name, value and description; `is_fraction`: a fraction of 1, shown in percent."""

    name: str
    value: float
    description: str
    is_fraction: bool = False


@dataclass(frozen=True)
class EvaluationFacts:
    """Results of an evaluation. `categories` are (name, correct, count); `errors` are (source, reference, output)."""

    model: str
    data: str
    split: str
    sample_count: str
    metrics: tuple[EvaluationMetric, ...]
    categories: tuple[tuple[str, int, int], ...] = ()
    errors: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())


def evaluation_document(facts: EvaluationFacts) -> Document:
    """Document with the metrics, the categories, and some wrong outputs."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (metric.name, _format_value(metric), metric.description) for metric in facts.metrics
    )
    parts: list[DocumentPart] = [
        Paragraph(f"{facts.data}, {_split_name(facts.split)}: {facts.sample_count}."),
        Table(("metric", "value", "description"), rows),
    ]
    if len(facts.categories) > 1:
        rates = tuple((name or "other", f"{correct / count:.1%}", f"{correct:,} of {count:,}")
                      for name, correct, count in facts.categories)  # fmt: skip
        parts += [Heading("By category"), Table(("category", "accuracy", "count"), rates)]
    if facts.errors:
        parts += [
            Heading("Wrong outputs"),
            Table(("source", "reference", "output"), tuple(tuple(map(_truncate, row)) for row in facts.errors)),
        ]
    parts += [Paragraph(note, "note") for note in facts.notes]
    return Document(f"{facts.model} on {facts.data}", tuple(parts))


def _format_value(metric: EvaluationMetric) -> str:
    if metric.is_fraction:
        return f"{metric.value:.2%}"
    return f"{metric.value:,.2f}" if abs(metric.value) >= 10 else f"{metric.value:.4f}"


def _truncate(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _split_name(split: str) -> str:
    return {"valid": "validation split", "train": "training split", "test": "test split", "all": "all data"}.get(
        split, split
    )
