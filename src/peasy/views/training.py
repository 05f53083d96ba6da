"""Training as documents: a run with its settings, loss curves and samples and runs side by side."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from peasy.views.document import Cell, Curves, Document, DocumentPart, Heading, Paragraph, Table

_MAX_POINTS = 24
"""Maximum number of points of a curve; metrics.jsonl has all of them."""


@dataclass(frozen=True)
class RunFacts:
    """Facts about a run, read from its folder. Curves are (step, loss); samples are (prompt, text)."""

    name: str
    folder: str
    kind: str
    preset: str
    data: str
    seed: int
    state: str
    step: int = 0
    parameters: int | None = None
    loss: float | None = None
    validation_loss: float | None = None
    tokens: int = 0
    elapsed: float = 0.0
    sha256: str | None = None
    train_losses: tuple[tuple[float, float], ...] = ()
    validation_losses: tuple[tuple[float, float], ...] = ()
    samples: tuple[tuple[str, str], ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


def run_document(run: RunFacts) -> Document:
    """Document of one run."""
    fields = {
        "kind": f"{run.kind}, {run.preset}", "data": run.data, "seed": str(run.seed), "state": run.state,
        "parameters": "" if run.parameters is None else f"{run.parameters:,}", "tokens": f"{run.tokens:,}",
        "time": format_duration(run.elapsed), "loss": _format_loss(run.loss),
        "validation loss": _format_loss(run.validation_loss), "weights": run.sha256[:16] if run.sha256 else "",
        "folder": run.folder,
    }  # fmt: skip
    parts: list[DocumentPart] = [Table(("field", "value"), tuple(fields.items()))]
    curves = (("training", _downsample(run.train_losses)), ("validation", run.validation_losses))
    lines = tuple((name, points) for name, points in curves if points)
    if lines:
        parts.append(Curves("Loss", lines, "step", "loss"))
    if run.samples:
        parts.append(Heading("Samples"))
        parts += [Paragraph(f"{prompt} ▸ {text}") for prompt, text in run.samples]
    return Document(run.name, tuple(parts))


def runs_document(runs: tuple[RunFacts, ...], folder: str) -> Document:
    """Document listing all runs, one row each."""
    if not runs:
        return Document("Runs", (Paragraph("No runs yet. Start one: peasy train gpt --data stories"),))
    columns = ("name", "kind", "data", "state", "validation loss", "time")
    rows = tuple(
        (run.name, f"{run.kind} {run.preset}", run.data, run.state, _format_loss(run.validation_loss),
         format_duration(run.elapsed))
        for run in runs
    )  # fmt: skip
    return Document("Runs", (Table(columns, rows), Paragraph(f"Runs are stored in {folder}.", "note")))


def diff_document(left: RunFacts, right: RunFacts) -> Document:
    """Document of the differences between two runs: settings, then results."""
    keys = [key for key in {**left.settings, **right.settings} if left.settings.get(key) != right.settings.get(key)]
    rows: list[tuple[Cell, ...]] = [(key, left.settings.get(key, ""), right.settings.get(key, "")) for key in keys]
    rows += [(name, value(left), value(right)) for name, value in _RESULTS.items() if value(left) != value(right)]
    table = Table(("field", left.name, right.name), tuple(rows))
    return Document(f"{left.name} and {right.name}", (table if rows else Paragraph("No differences.", "good"),))


def format_duration(seconds: float) -> str:
    """Return a duration as text.

    >>> format_duration(7), format_duration(75), format_duration(3 * 3600 + 120)
    ('7 s', '1 min 15 s', '3 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


_Points = tuple[tuple[float, float], ...]


def _downsample(points: _Points, max_points: int = _MAX_POINTS) -> _Points:
    """Downsample a long curve by averaging segments.

    >>> _downsample(((1, 4.0), (2, 2.0), (3, 1.0), (4, 1.0)), max_points=2)
    ((2, 3.0), (4, 1.0))
    """
    if len(points) <= max_points:
        return points
    cuts = [round(i * len(points) / max_points) for i in range(max_points + 1)]
    parts = [points[a:b] for a, b in pairwise(cuts)]
    return tuple((part[-1][0], sum(y for _, y in part) / len(part)) for part in parts)


def _format_loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4f}"


_RESULTS: dict[str, Callable[[RunFacts], str]] = {
    "step": lambda run: str(run.step),
    "loss": lambda run: _format_loss(run.loss),
    "validation loss": lambda run: _format_loss(run.validation_loss),
    "time": lambda run: format_duration(run.elapsed),
    "weights": lambda run: (run.sha256 or "")[:16],
}
"""Results of a run that are compared with those of another."""
