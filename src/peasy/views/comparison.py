"""Comparison of model kinds on the same data, as a document: a table of metrics and loss curves."""

from dataclasses import dataclass

from peasy.views.document import Cell, Curves, Document, Paragraph, Part, Table
from peasy.views.run import as_time


@dataclass(frozen=True)
class Contender:
    """Trained model in a comparison. `measures` are (name, value, is percentage); curve is (seconds, y)."""

    kind: str
    run: str
    parameters: int
    tokens: int
    seconds: float
    measures: tuple[tuple[str, float, bool], ...]
    curve: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class ComparisonFacts:
    """Models of a comparison, ranked by `measure`, the best first."""

    data: str
    budget: str
    seed: int
    measure: str
    contenders: tuple[Contender, ...]
    notes: tuple[str, ...] = ()

    @property
    def drawn(self) -> str:
        """Metric of the curves: `measure` if it is known during training, else the loss."""
        return self.measure if self.measure == "bits per byte" else "loss"


def comparison_document(facts: ComparisonFacts) -> Document:
    """Document with one row for each model, then the curves."""
    names = list(dict.fromkeys(name for model in facts.contenders for name, _, _ in model.measures))
    columns = ("kind", "parameters", "training tokens", "time", *names)
    rows = tuple(_row(model, names) for model in facts.contenders)
    parts: list[Part] = [
        Paragraph(f"{facts.data}, {facts.budget}, seed {facts.seed}. Ranked by {facts.measure}, best first."),
        Table(columns, rows),
    ]
    lines = tuple((model.kind, model.curve) for model in facts.contenders if model.curve)
    if lines:
        parts.append(Curves(f"Validation {facts.drawn}", lines, "seconds", facts.drawn))
    parts += [Paragraph(note, "note") for note in facts.notes]
    kinds = ", ".join(model.kind for model in facts.contenders)
    return Document(f"{kinds} on {facts.data}", tuple(parts))


def _row(each: Contender, names: list[str]) -> tuple[Cell, ...]:
    values = {name: f"{value:.2%}" if share else f"{value:.4f}" for name, value, share in each.measures}
    return (
        each.kind,
        f"{each.parameters:,}",
        f"{each.tokens:,}",
        as_time(each.seconds),
        *(values.get(name, "") for name in names),
    )
