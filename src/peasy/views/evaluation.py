"""Measurements as documents: the evaluation of a model, a comparison of kinds of model, an experiment."""

from collections.abc import Sequence
from dataclasses import dataclass

from peasy.views.document import Cell, Curves, Document, DocumentPart, Heading, Paragraph, Table
from peasy.views.training import format_duration

_SPLIT_NAMES = {"valid": "validation split", "train": "training split", "test": "test split", "all": "all data"}


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
    notes: tuple[str, ...] = ()


def evaluation_document(facts: EvaluationFacts) -> Document:
    """Document with the metrics, the categories, and some wrong outputs."""
    rows = []
    for metric in facts.metrics:
        style = ".2%" if metric.is_fraction else ",.2f" if abs(metric.value) >= 10 else ".4f"
        rows.append((metric.name, format(metric.value, style), metric.description))
    parts: list[DocumentPart] = [
        Paragraph(f"{facts.data}, {_SPLIT_NAMES.get(facts.split, facts.split)}: {facts.sample_count}."),
        Table(("metric", "value", "description"), tuple(rows)),
    ]
    if len(facts.categories) > 1:
        rates = tuple((name or "other", f"{correct / count:.1%}", f"{correct:,} of {count:,}")
                      for name, correct, count in facts.categories)  # fmt: skip
        parts += [Heading("By category"), Table(("category", "accuracy", "count"), rates)]
    if facts.errors:
        errors = tuple(tuple(text if len(text) <= 60 else f"{text[:59]}…" for text in row) for row in facts.errors)
        parts += [Heading("Wrong outputs"), Table(("source", "reference", "output"), errors)]
    parts += [Paragraph(note, "note") for note in facts.notes]
    return Document(f"{facts.model} on {facts.data}", tuple(parts))


@dataclass(frozen=True)
class ComparedModel:
    """Trained model in a comparison. `metrics` are (name, value, is percentage); `curve` is (seconds, y)."""

    kind: str
    run: str
    parameters: int
    tokens: int
    seconds: float
    metrics: tuple[tuple[str, float, bool], ...]
    curve: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class ComparisonFacts:
    """Models of a comparison, ranked by `metric`, the best first."""

    data: str
    budget: str
    seed: int
    metric: str
    models: tuple[ComparedModel, ...]
    notes: tuple[str, ...] = ()


def comparison_document(facts: ComparisonFacts) -> Document:
    """Document with one row for each model, then the curves."""
    names = list(dict.fromkeys(name for model in facts.models for name, _, _ in model.metrics))
    columns = ("kind", "parameters", "training tokens", "time", *names)
    rows: list[tuple[Cell, ...]] = []
    for model in facts.models:
        values = {name: f"{value:.2%}" if share else f"{value:.4f}" for name, value, share in model.metrics}
        counts = (f"{model.parameters:,}", f"{model.tokens:,}", format_duration(model.seconds))
        rows.append((model.kind, *counts, *(values.get(name, "") for name in names)))
    parts: list[DocumentPart] = [
        Paragraph(f"{facts.data}, {facts.budget}, seed {facts.seed}. Ranked by {facts.metric}, best first."),
        Table(columns, tuple(rows)),
    ]
    curve = facts.metric if facts.metric == "bits per byte" else "loss"  # what is known during training
    lines = tuple((model.kind, model.curve) for model in facts.models if model.curve)
    parts += [Curves(f"Validation {curve}", lines, "seconds", curve)] if lines else []
    parts += [Paragraph(note, "note") for note in facts.notes]
    kinds = ", ".join(model.kind for model in facts.models)
    return Document(f"{kinds} on {facts.data}", tuple(parts))


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
