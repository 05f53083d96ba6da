"""Comparison of model kinds on the same data, as a document: a table of metrics and loss curves."""

from dataclasses import dataclass

from peasy.views.document import Cell, Curves, Document, DocumentPart, Paragraph, Table
from peasy.views.run import format_duration


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

    @property
    def curve_metric(self) -> str:
        """Metric of the curves: `metric` if it is known during training, else the loss."""
        return self.metric if self.metric == "bits per byte" else "loss"


def comparison_document(facts: ComparisonFacts) -> Document:
    """Document with one row for each model, then the curves."""
    names = list(dict.fromkeys(name for model in facts.models for name, _, _ in model.metrics))
    columns = ("kind", "parameters", "training tokens", "time", *names)
    rows = tuple(_row(model, names) for model in facts.models)
    parts: list[DocumentPart] = [
        Paragraph(f"{facts.data}, {facts.budget}, seed {facts.seed}. Ranked by {facts.metric}, best first."),
        Table(columns, rows),
    ]
    lines = tuple((model.kind, model.curve) for model in facts.models if model.curve)
    if lines:
        parts.append(Curves(f"Validation {facts.curve_metric}", lines, "seconds", facts.curve_metric))
    parts += [Paragraph(note, "note") for note in facts.notes]
    kinds = ", ".join(model.kind for model in facts.models)
    return Document(f"{kinds} on {facts.data}", tuple(parts))


def _row(model: ComparedModel, names: list[str]) -> tuple[Cell, ...]:
    values = {name: f"{value:.2%}" if share else f"{value:.4f}" for name, value, share in model.metrics}
    return (
        model.kind,
        f"{model.parameters:,}",
        f"{model.tokens:,}",
        format_duration(model.seconds),
        *(values.get(name, "") for name in names),
    )
