"""`runs`: list, show, diff and delete training runs."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, field
from itertools import pairwise
from pathlib import Path

from peasy import config
from peasy.atomic import set_aside
from peasy.checkpoint import paths
from peasy.checkpoint.hub import Confirm
from peasy.commands.result import JsonDict, Result
from peasy.config import parse_json
from peasy.errors import NotFound, PeasyError, UsageError, did_you_mean
from peasy.parameters import Record
from peasy.training.metrics_log import METRICS_FILE, SAMPLES_FILE, read_log
from peasy.training.run_folder import is_locked, run_lock
from peasy.views.document import Cell, Curves, Document, DocumentPart, Heading, Paragraph, Table, format_duration

RECIPE = "recipe.json"
_MAX_POINTS = 24
"""Maximum number of points of a curve; metrics.jsonl has all of them."""


class RunFacts(Record):
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


class Run(Result):
    """One training run: its folder, read without its weights."""

    name: str
    folder: Path

    def recipe(self) -> JsonDict:
        """Return the recipe as plain data."""
        path = self.folder / RECIPE
        recipe: JsonDict = parse_json(path.read_bytes(), str(path))
        return recipe

    @property
    def metrics(self) -> list[JsonDict]:
        """Every complete line of `metrics.jsonl`."""
        return list(read_log(self.folder / METRICS_FILE))

    def samples(self) -> list[JsonDict]:
        """Return all samples generated during training."""
        return list(read_log(self.folder / SAMPLES_FILE))

    def facts(self) -> RunFacts:
        """Collect state, losses, samples and settings of the run."""
        recipe, metrics, samples = self.recipe(), self.metrics, self.samples()
        steps = [line for line in metrics if line["event"] == "step"]
        validations = [line for line in metrics if line["event"] == "validated"]
        end: JsonDict = next((line for line in reversed(metrics) if line["event"] in ("finished", "saved")), {})
        start: JsonDict = next((line for line in metrics if line["event"] == "started"), {})
        last = steps[-1] if steps else {}
        latest = samples[-1] if samples else {"prompts": (), "texts": ()}
        return RunFacts(
            self.name, str(self.folder), recipe["model_kind"], recipe["preset"], recipe["data"], recipe["seed"],
            self._state(recipe, metrics), last.get("step", 0), start.get("num_parameters"), last.get("loss"),
            validations[-1]["loss"] if validations else None, last.get("tokens", 0),
            end.get("elapsed_seconds") or last.get("elapsed_seconds") or 0.0, end.get("sha256"),
            tuple((line["step"], line["loss"]) for line in steps),
            tuple((line["step"], line["loss"]) for line in validations),
            tuple(zip(latest["prompts"], latest["texts"], strict=True)),
            config.flatten(recipe),
        )  # fmt: skip

    def _state(self, recipe: JsonDict, metrics: list[JsonDict]) -> str:
        step = max((line.get("step", 0) for line in metrics), default=0)
        if any(line["event"] == "finished" for line in metrics):
            return f"finished after {step:,} steps"
        if is_locked(self.folder):
            return f"being trained, at step {step:,}"
        budget = f" of {recipe['steps']:,}" if recipe.get("steps") else ""
        saved = paths.list_checkpoints(self.folder)
        start = f"after step {int(saved[0].name.removeprefix('step-')):,}" if saved else "from the beginning"
        return f"stopped at step {step:,}{budget}; --resume continues {start}"

    def resume_command(self) -> str:
        """Return the command that resumes the run."""
        is_named = paths.find_runs().get(self.name) == self.folder
        return f"peasy train {self.recipe()['model_kind']} --run {self.name if is_named else self.folder} --resume"

    def document(self) -> Document:
        """Return facts, curves and samples."""
        run = self.facts()
        fields = {
            "kind": f"{run.kind}, {run.preset}", "data": run.data, "seed": str(run.seed), "state": run.state,
            "parameters": "" if run.parameters is None else f"{run.parameters:,}", "tokens": f"{run.tokens:,}",
            "time": format_duration(run.elapsed), "loss": _format_loss(run.loss),
            "validation loss": _format_loss(run.validation_loss), "weights": run.sha256[:16] if run.sha256 else "",
            "folder": run.folder,
        }  # fmt: skip
        parts: list[DocumentPart] = [Table(("field", "value"), tuple(fields.items()))]
        curves = (("training", _downsample(run.train_losses)), ("validation", run.validation_losses))
        if lines := tuple((name, points) for name, points in curves if points):
            parts.append(Curves("Loss", lines, "step", "loss"))
        if run.samples:
            parts += [Heading("Samples"), *(Paragraph(f"{prompt} ▸ {text}") for prompt, text in run.samples)]
        return Document(run.name, tuple(parts))

    def data(self) -> JsonDict:
        """Return facts, recipe and resume command as plain data."""
        kept = [name for folder in reversed(paths.list_checkpoints(self.folder)) if (name := folder.name) != self.name]
        steps = [int(name.removeprefix("step-")) for name in kept]
        return asdict(self.facts()) | {"recipe": self.recipe(), "resume": self.resume_command(), "checkpoints": steps}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.facts().state})"


class RunsResult(Result):
    """List of all training runs: iterate over them, or take one by its name, `runs()["fox"]`."""

    runs: tuple[Run, ...]

    def document(self) -> Document:
        """Return a table with one row per run."""
        if not self.runs:
            return Document("Runs", (Paragraph("No runs yet. Start one: peasy train gpt --data stories"),))
        rows = []
        for run in (run.facts() for run in self.runs):
            loss, time = _format_loss(run.validation_loss), format_duration(run.elapsed)
            rows.append((run.name, f"{run.kind} {run.preset}", run.data, run.state, loss, time))
        table = Table(("name", "kind", "data", "state", "validation loss", "time"), tuple(rows))
        return Document("Runs", (table, Paragraph(f"Runs are stored in {paths.data_dir() / 'runs'}.", "note")))

    def data(self) -> JsonDict:
        """Return the facts without curves and samples."""
        omitted = ("train_losses", "validation_losses", "samples", "settings")
        rows = [{k: v for k, v in asdict(run.facts()).items() if k not in omitted} for run in self.runs]
        return {"runs": rows, "home": str(paths.data_dir())}

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __getitem__(self, name: str) -> Run:
        return open_run(name)

    def __repr__(self) -> str:
        return f"RunsResult({', '.join(run.name for run in self.runs)})"


class MetricsResult(Run):
    """Metrics of a run from event number `since` on; `live` while it is being trained."""

    events: tuple[JsonDict, ...]
    since: int
    live: bool

    def data(self) -> JsonDict:
        """Return the events, the number of the next one, and the latest samples."""
        position = {"since": self.since, "next": self.since + len(self.events), "live": self.live}
        return {"run": self.name, **position, "events": list(self.events), "samples": self.samples()[-6:]}


class DiffResult(Result):
    """Difference between two runs."""

    left: Run
    right: Run

    def document(self) -> Document:
        """Return only what differs."""
        left, right = self.left.facts(), self.right.facts()
        keys = [key for key in left.settings | right.settings if left.settings.get(key) != right.settings.get(key)]
        rows: list[tuple[Cell, ...]] = [(key, left.settings.get(key, ""), right.settings.get(key, "")) for key in keys]
        rows += [(name, value(left), value(right)) for name, value in _RESULTS.items() if value(left) != value(right)]
        table = Table(("field", left.name, right.name), tuple(rows))
        return Document(f"{left.name} and {right.name}", (table if rows else Paragraph("No differences.", "good"),))

    def data(self) -> JsonDict:
        """Return the differing settings with both values."""
        left, right = self.left.facts(), self.right.facts()
        pairs = {key: [left.settings.get(key), right.settings.get(key)] for key in left.settings | right.settings}
        both = {name: [getattr(left, name), getattr(right, name)] for name in ("validation_loss", "loss", "sha256")}
        changed = {key: pair for key, pair in sorted(pairs.items()) if pair[0] != pair[1]}
        return {"left": left.name, "right": right.name, "settings": changed, **both}


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


class RemoveResult(Result, repr=True):
    """A deleted run or imported model."""

    removed: str
    folder: Path

    def document(self) -> Document:
        """Return a confirmation."""
        return Document("Removed", (Paragraph(f"Removed {self.removed}: {self.folder}."),))


def runs() -> RunsResult:
    """List all training runs by name, without imported models.

    >>> type(runs()).__name__
    'RunsResult'
    """
    folders = (Run(name, folder) for name, folder in paths.find_runs().items() if (folder / RECIPE).is_file())
    return RunsResult(tuple(run for run in folders if _is_readable(run)))


def metrics_since(run: Run, since: int = 0) -> MetricsResult:
    """Return the logged training events of a run from number `since` on."""
    live = is_locked(run.folder)  # checked before reading: later events are returned by the next call
    events = run.metrics
    since = since if since <= len(events) else 0  # a resumed run drops events newer than its checkpoint
    return MetricsResult(run.name, run.folder, tuple(events[since:]), since, live)


def diff_runs(left: str | Path, right: str | Path) -> DiffResult:
    """Compare two runs."""
    return DiffResult(open_run(left), open_run(right))


def remove_run(run: str | Path, *, yes: bool = False, confirm: Confirm | None = None) -> RemoveResult:
    """Delete a run permanently; asks first, and refuses while the run is being trained."""
    target = open_run(run)
    question = f"Delete the run {target.name} with all its checkpoints ({target.folder})?"
    return remove_folder(target.name, target.folder, question, yes, confirm)


def remove_folder(name: str, folder: Path, question: str, yes: bool, confirm: Confirm | None) -> RemoveResult:
    """Delete a folder after confirmation: renamed first, so that no half-deleted run or model is ever listed."""
    if not yes and not (confirm is not None and confirm(question)):
        raise UsageError(f"{question} This was not confirmed.", hint="Confirm with --yes.")
    with run_lock(folder):
        trash = set_aside(folder, "removed")
    shutil.rmtree(trash, ignore_errors=True)
    return RemoveResult(name, folder)


def open_run(run: str | Path) -> Run:
    """Open a run by name or by folder."""
    known = paths.find_runs()
    name = str(run)
    folder = known[name] if name in known else Path(run).expanduser()
    if (folder / RECIPE).is_file():
        return Run(folder.name, folder)
    if folder.is_dir():
        raise NotFound(f"{folder} is not a training run.", hint="See all: peasy runs")
    suggestion = did_you_mean(name, known)
    raise NotFound(f'No run "{name}".', hint=f"{suggestion + ' ' if suggestion else ''}See all: peasy runs")


def recipe_of(folder: Path | None) -> JsonDict:
    """Return the recipe of the run that a model's folder belongs to; empty if it is not beside the checkpoint."""
    folders = () if folder is None else (folder, *folder.parents[:2])
    return next((Run(one.name, one).recipe() for one in folders if (one / RECIPE).is_file()), {})


def _is_readable(run: Run) -> bool:
    try:
        return isinstance(run.recipe().get("model_kind"), str)
    except (PeasyError, OSError, AttributeError):
        return False
