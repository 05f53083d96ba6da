"""`runs`: what was trained, how far it came, what differs, and away with it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peasy.checkpoint import home
from peasy.checkpoint.folder import parse_json
from peasy.errors import NotFound, PeasyError, UsageError, did_you_mean
from peasy.training.lock import held, locked
from peasy.views.document import Document, Paragraph
from peasy.views.run import RunFacts, diff_document, run_document, runs_document
from peasy.workbench.result import Result

RECIPE = "recipe.json"


@dataclass(frozen=True)
class Run:
    """A run folder, read without its weights."""

    name: str
    folder: Path

    def recipe(self) -> dict[str, Any]:
        """The recipe as plain data."""
        path = self.folder / RECIPE
        return parse_json(path.read_bytes(), str(path))

    def metrics(self) -> list[dict[str, Any]]:
        """Every whole line of `metrics.jsonl`."""
        return _lines(self.folder / "metrics.jsonl")

    def samples(self) -> list[dict[str, Any]]:
        """Everything the model wrote on the way."""
        return _lines(self.folder / "samples.jsonl")

    def facts(self) -> RunFacts:
        """What can be said of the run."""
        recipe, metrics, samples = self.recipe(), self.metrics(), self.samples()
        steps = [line for line in metrics if line["event"] == "step"]
        checked = [line for line in metrics if line["event"] == "validated"]
        ended: dict[str, Any] = next((line for line in reversed(metrics) if line["event"] in ("finished", "saved")), {})
        begun: dict[str, Any] = next((line for line in metrics if line["event"] == "started"), {})
        last = steps[-1] if steps else {}
        newest = samples[-1] if samples else {"prompts": (), "texts": ()}
        return RunFacts(
            self.name, str(self.folder), recipe["trains"], recipe["preset"], recipe["data"], recipe["seed"],
            self._state(recipe, metrics), last.get("step", 0), begun.get("parameters"), last.get("loss"),
            checked[-1]["loss"] if checked else None, last.get("tokens", 0),
            ended.get("elapsed", last.get("elapsed", 0.0)), ended.get("sha256"),
            tuple((line["step"], line["loss"]) for line in steps),
            tuple((line["step"], line["loss"]) for line in checked),
            tuple(zip(newest["prompts"], newest["texts"], strict=True)),
            dict(_flat(recipe, "")),
        )  # fmt: skip

    def _state(self, recipe: dict[str, Any], metrics: list[dict[str, Any]]) -> str:
        step = max((line.get("step", 0) for line in metrics), default=0)
        if any(line["event"] == "finished" for line in metrics):
            return f"finished after {step:,} steps"
        if held(self.folder):
            return f"being trained, at step {step:,}"
        budget = f" of {recipe['steps']:,}" if recipe.get("steps") else ""
        return f"stopped at step {step:,}{budget}; --resume goes on"

    def resume_line(self) -> str:
        """What to type to go on."""
        known = home.runs().get(self.name) == self.folder
        return f"peasy train {self.recipe()['trains']} --run {self.name if known else self.folder} --resume"

    def data(self) -> dict[str, Any]:
        """Facts, recipe and where everything lies, as plain data."""
        facts = asdict(self.facts())
        return facts | {"recipe": self.recipe(), "resume": self.resume_line()}


@dataclass(frozen=True, repr=False)
class RunsResult(Result):
    """All runs."""

    runs: tuple[Run, ...]

    def document(self) -> Document:
        """One row for each run."""
        return runs_document(tuple(run.facts() for run in self.runs), str(home.home() / "runs"))

    def data(self) -> dict[str, Any]:
        """Facts without curves and samples."""
        heavy = ("learned", "validated", "samples", "settings")
        found = [{k: v for k, v in asdict(run.facts()).items() if k not in heavy} for run in self.runs]
        return {"runs": found, "home": str(home.home())}

    def __repr__(self) -> str:
        return f"RunsResult({', '.join(run.name for run in self.runs)})"


@dataclass(frozen=True, repr=False)
class RunResult(Result):
    """One run in full."""

    run: Run

    def document(self) -> Document:
        """Facts, curves, samples."""
        return run_document(self.run.facts())

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        return self.run.data()

    def __repr__(self) -> str:
        return f"RunResult({self.run.name})"


@dataclass(frozen=True, repr=False)
class MetricsResult(Result):
    """What happened in a run from the `since`-th event on; `live` while it is being trained."""

    run: Run
    events: tuple[dict[str, Any], ...]
    since: int
    live: bool

    def document(self) -> Document:
        """The run as it stands."""
        return run_document(self.run.facts())

    def data(self) -> dict[str, Any]:
        """The events, from where to ask next, and the newest texts that the model wrote."""
        told = {"since": self.since, "next": self.since + len(self.events), "live": self.live}
        return {"run": self.run.name, **told, "events": list(self.events), "samples": self.run.samples()[-6:]}

    def __repr__(self) -> str:
        return f"MetricsResult({self.run.name}: {len(self.events)} events)"


@dataclass(frozen=True, repr=False)
class DiffResult(Result):
    """Two runs, side by side."""

    left: Run
    right: Run

    def document(self) -> Document:
        """Only what differs."""
        return diff_document(self.left.facts(), self.right.facts())

    def data(self) -> dict[str, Any]:
        """Which settings differ, with both values."""
        left, right = self.left.facts(), self.right.facts()
        keys = [key for key in {**left.settings, **right.settings} if left.settings.get(key) != right.settings.get(key)]
        changed = {key: [left.settings.get(key), right.settings.get(key)] for key in sorted(keys)}
        return {"left": left.name, "right": right.name, "settings": changed, "valid": [left.valid, right.valid],
                "loss": [left.loss, right.loss], "sha256": [left.sha256, right.sha256]}  # fmt: skip

    def __repr__(self) -> str:
        return f"DiffResult({self.left.name}, {self.right.name})"


@dataclass(frozen=True, repr=False)
class RemoveResult(Result):
    """A run that is gone."""

    name: str
    folder: Path

    def document(self) -> Document:
        """One sentence."""
        return Document("Removed", (Paragraph(f"{self.name} is gone: {self.folder}."),))

    def data(self) -> dict[str, Any]:
        """Name and place."""
        return {"removed": self.name, "folder": str(self.folder)}

    def __repr__(self) -> str:
        return f"RemoveResult({self.name})"


def runs() -> RunsResult:
    """All training runs, by name; imported models are not among them."""
    found = (Run(name, folder) for name, folder in home.runs().items() if (folder / RECIPE).is_file())
    return RunsResult(tuple(run for run in found if _readable(run)))


def show_run(run: str | Path) -> RunResult:
    """One run in full."""
    return RunResult(open_run(run))


def metrics_since(run: Run, since: int = 0) -> MetricsResult:
    """The events of a run as they were told while it was trained, from the `since`-th on."""
    live = held(run.folder)  # asked first: what is written after this is told next time
    events = run.metrics()
    since = since if since <= len(events) else 0  # a run that goes on takes back what its checkpoint does not know
    return MetricsResult(run, tuple(events[since:]), since, live)


def diff_runs(left: str | Path, right: str | Path) -> DiffResult:
    """What differs between two runs."""
    return DiffResult(open_run(left), open_run(right))


def remove_run(run: str | Path, *, yes: bool = False, ask: Callable[[str], bool] | None = None) -> RemoveResult:
    """Delete a run for good; asks first, and never deletes one that is being trained."""
    found = open_run(run)
    question = f"Delete the run {found.name} with all its checkpoints ({found.folder})?"
    if not yes and not (ask is not None and ask(question)):
        raise UsageError(f"{question} Nobody said yes.", hint="Say it beforehand: --yes")
    with locked(found.folder):
        gone = found.folder.with_name(f".{found.folder.name}.removed")
        shutil.rmtree(gone, ignore_errors=True)
        found.folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    return RemoveResult(found.name, found.folder)


def open_run(run: str | Path) -> Run:
    """A run by name or by folder."""
    known = home.runs()
    name = str(run)
    folder = known[name] if name in known else Path(run).expanduser()
    if (folder / RECIPE).is_file():
        return Run(folder.name, folder)
    if folder.is_dir():
        raise NotFound(f"{folder} is not a training run.", hint="See all: peasy runs")
    near = did_you_mean(name, known)
    raise NotFound(f'No run "{name}".', hint=f"{near + ' ' if near else ''}See all: peasy runs")


def _readable(run: Run) -> bool:
    try:
        return isinstance(run.recipe().get("trains"), str)
    except (PeasyError, OSError, AttributeError):
        return False


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole: the last one may be torn where a run was killed."""
    found = []
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        try:
            read = json.loads(line)
        except ValueError:
            continue
        if isinstance(read, dict) and "event" in read:
            found.append(read)
    return found


def _flat(data: Any, where: str) -> list[tuple[str, str]]:
    """Settings by their paths, values as text."""
    if isinstance(data, dict):
        return [pair for key, value in data.items() for pair in _flat(value, f"{where}.{key}".lstrip("."))]
    return [(where, "" if data is None else data if isinstance(data, str) else json.dumps(data))]
