"""Several kinds of model on the same work, as a document: a table, and their curves on one measure."""

from dataclasses import dataclass

from peasy.views.document import Cell, Curves, Document, Paragraph, Part, Table
from peasy.views.run import as_time


@dataclass(frozen=True)
class Contender:
    """One kind and what became of it. `measures` are (name, value, whether it is a share); curve is (seconds, y)."""

    kind: str
    run: str
    parameters: int
    tokens: int
    seconds: float
    measures: tuple[tuple[str, float, bool], ...]
    curve: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class ComparisonFacts:
    """The contenders in the order of their rank on `measure`, the best first."""

    data: str
    budget: str
    seed: int
    measure: str
    contenders: tuple[Contender, ...]
    notes: tuple[str, ...] = ()

    @property
    def drawn(self) -> str:
        """What the curves show: the measure where it can be had on the way, else the loss."""
        return self.measure if self.measure == "bits per byte" else "loss"


def comparison_document(facts: ComparisonFacts) -> Document:
    """One row for each kind, then the curves."""
    names = list(dict.fromkeys(name for each in facts.contenders for name, _, _ in each.measures))
    columns = ("kind", "parameters", "tokens seen", "time", *names)
    rows = tuple(_row(each, names) for each in facts.contenders)
    parts: list[Part] = [
        Paragraph(f"{facts.data}, {facts.budget}, seed {facts.seed}. The best on {facts.measure} first."),
        Table(columns, rows),
    ]
    lines = tuple((each.kind, each.curve) for each in facts.contenders if each.curve)
    if lines:
        parts.append(Curves(f"{facts.drawn} on held-out data", lines, "seconds", facts.drawn))
    parts += [Paragraph(note, "note") for note in facts.notes]
    kinds = ", ".join(each.kind for each in facts.contenders)
    return Document(f"{kinds} on {facts.data}", tuple(parts))


def _row(each: Contender, names: list[str]) -> tuple[Cell, ...]:
    found = {name: f"{value:.2%}" if share else f"{value:.4f}" for name, value, share in each.measures}
    return (
        each.kind,
        f"{each.parameters:,}",
        f"{each.tokens:,}",
        as_time(each.seconds),
        *(found.get(name, "") for name in names),
    )
