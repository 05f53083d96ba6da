"""Commands for training and data: `peasy train`, `plan`, `compare`, `evaluate`, `experiment`, `data`."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from signal import SIGINT
from typing import Annotated

from cyclopts import Parameter

from peasy.cli.command import CommandOutput, Flags, StrList, Switch
from peasy.cli.derive import derive
from peasy.cli.output import ProgressLine, print_json
from peasy.commands import compare as compare_command
from peasy.commands import data as data_command
from peasy.commands import evaluate as evaluate_command
from peasy.commands import plan as plan_command
from peasy.commands import train as train_command
from peasy.commands.result import JsonDict
from peasy.commands.runs import open_run
from peasy.config import apply_setting
from peasy.errors import UsageError
from peasy.experiments import experiment as experiment_command
from peasy.experiments.result import OnStatus, ignore_status
from peasy.experiments.statistics import Outcome
from peasy.models.preset import ModelKind
from peasy.training.event import Event, Finished, Sampled, Started, TrainStep, Validated, event_data
from peasy.training.signals import stop_on_signal
from peasy.views.document import format_duration

_SetFlag = Annotated[list[str] | None, Parameter(name="--set", negative="")]
"""`--set key=value`, repeatable."""

_SHORTCUTS = {"lr": "optimizer.lr", "batch_size": "batch_size"}


@derive(train_command.train, hide=("settings", "sinks", "progress"))
def train(
    call: partial[train_command.TrainResult],
    kind: ModelKind,
    *,
    data: StrList = None,
    set_: _SetFlag = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Train a model on built-in or your own data.

    Args:
        kind: Model kind.
        set_: Override any setting: optimizer.lr=0.01, model.dropout=0.1, seq_len=128, compile=true, ... Can be
            repeated.
    """
    source, settings = _join_data(data), _recipe_settings(call.keywords, set_)
    if call.keywords.pop("dry_run", False):
        result = call(kind, source, settings=settings, dry_run=True)
        return CommandOutput(result, suggestions=[_train_line(kind, data or (), call.keywords, set_)])
    progress_line, folder = TrainProgress(flags), None
    progress = ProgressLine("tokenizing", flags, unit=" characters")
    with stop_on_signal(at_once=True) as stop, progress.waiting("reading the data") as end_wait:
        events = train_command.train_events(kind, source, settings=settings, progress=progress, **call.keywords)
        for event in events:
            stop.at_once = False
            end_wait()
            folder = event.run if isinstance(event, Started) else folder
            if flags.json:  # one line each; the result of the command is the last one
                print_json(event_data(event))
            else:
                progress_line.show(event)
            if stop.requested:
                events.close()
                break
    assert folder is not None, "the first event is Started"
    run = open_run(folder)
    done = [f"peasy runs show {run.name}", f"peasy models {run.name}"]
    suggestions = done if stop.signal is None else [run.resume_command()]
    exit_code = 130 if stop.signal == SIGINT else 0
    return CommandOutput(train_command.TrainResult(run.name, run.folder), suggestions=suggestions, exit_code=exit_code)


class TrainProgress:
    """Training progress on stderr: loss, validation loss, tokens per second, remaining time."""

    def __init__(self, flags: Flags) -> None:
        self.line = ProgressLine("", flags)
        self.validation_loss: float | None = None

    def show(self, event: Event) -> None:
        """Print milestones on their own line, and update the progress line."""
        match event:
            case Started():
                self.line.print(_start_line(event) + _export_warning(event.run))
            case Validated():
                self.validation_loss = event.loss
                self.line.print(f"step {event.step:,}: validation loss {event.loss:.4f}")
            case Sampled(texts=[text, *_], prompts=[prompt, *_]):
                shown = (" ".join(part.split()) for part in (prompt, text))
                start, end = (part if len(part) <= 60 else f"{part[:59]}…" for part in shown)
                self.line.print(f"step {event.step:,}: {start} ▸ {end}")
            case TrainStep() if self.line.is_due():
                validation = "" if self.validation_loss is None else f" · validation {self.validation_loss:.3f}"
                rate, left = f"{event.tokens_per_second:,.0f} tokens/s", format_duration(event.eta_seconds)
                self.line.update(f"step {event.step:,} · loss {event.loss:.3f}{validation} · {rate} · {left} left")
            case Finished():
                self.line.print(_finished_line(event))


def _finished_line(event: Finished) -> str:
    line = f"after {event.step:,} steps in {format_duration(event.elapsed_seconds)}"
    if event.best_step is None:
        return f"finished {line}"
    kept = f"{event.folder.parent.parent.name}@{event.best_step}"
    return f"stopped early {line}; lowest validation loss: {event.best_loss:.4f}, {kept}"


def _start_line(event: Started) -> str:
    line = f"run {event.run.name} · seed {event.seed} · {event.num_parameters:,} parameters · {event.precision}"
    if event.step:
        line += f" · resumed after step {event.step:,}"
    return f"{line}\n! {event.warning}" if event.warning else line


def _export_warning(run: Path) -> str:
    """Return a warning about layers that no export format but ONNX supports, before a long training."""
    settings = json.loads((run / "model.json").read_text(encoding="utf-8"))
    shift, ngrams = settings.get("stack", {}).get("token_shift"), settings.get("embedding", {}).get("max_ngram", 1) > 1
    if not shift and not ngrams:
        return ""
    layers = " and ".join(["token shift"] * bool(shift) + ["n-gram embeddings"] * ngrams)
    limit = "it learns faster, but can only be exported to ONNX. For Hugging Face and GGUF:"
    return f"\nThe model uses {layers}: {limit}\n  --preset small"


@derive(plan_command.plan, hide=("settings",))
def plan(
    call: partial[plan_command.PlanResult],
    kind: str,
    *,
    data: StrList = None,
    set_: _SetFlag = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Estimate the time and memory of training.

    Args:
        set_: Override any setting: optimizer.lr=0.01, model.dropout=0.1, seq_len=128, ... Can be repeated.
    """
    result = call(kind, _join_data(data), settings=_recipe_settings(call.keywords, set_))
    return CommandOutput(result, suggestions=[_train_line(kind, data, call.keywords, set_)] if data else [])


@derive(compare_command.compare, hide=("name", "settings", "on_event"))
def compare(
    call: partial[compare_command.CompareResult],
    *kinds: ModelKind,
    data: StrList = None,
    run: str | None = None,
    set_: _SetFlag = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Train several model kinds on the same data, with the same budget and seed, and compare them.

    Args:
        run: Prefix of the run names; default: a random name.
        set_: Override a setting of all recipes: seq_len=128, ...
    """
    if not data:
        raise UsageError("compare needs data.", hint="For example: --data stories. See all: peasy data")
    settings, progress = _recipe_settings(call.keywords, set_), TrainProgress(flags)

    def on_event(kind: str, event: Event) -> None:
        if flags.json:  # one line each, as from train; the result is the last one
            print_json({"kind": kind, **event_data(event)})
        else:
            progress.show(event)

    result = call(kinds, _join_data(data), name=run, settings=settings, on_event=on_event)
    return CommandOutput(result, suggestions=[f"peasy runs show {result.models[0].run}"])


@derive(evaluate_command.evaluate, hide=("options", "on_progress"))
def evaluate(
    call: partial[evaluate_command.EvaluateResult],
    model: str,
    *data: str,
    set_: _SetFlag = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Evaluate a model on a dataset, by default on the validation split.

    Args:
        set_: Option of the dataset: lines=true, source=english, num_pairs=5000, ...
    """
    if not data:
        raise UsageError("evaluate needs DATA.", hint=f"For example: peasy evaluate {model} stories")
    progress = ProgressLine("evaluating", flags)
    result = call(model, _join_data(data), options=_parse_settings(set_), on_progress=progress)
    return CommandOutput(result, suggestions=[f"peasy models {model}"])


def experiment(name: str | None = None, *, seeds: int = 1, flags: Flags = Flags()) -> CommandOutput:
    """Run an experiment that tests a claim of the lecture notes against a control.

    Args:
        name: Name of the experiment; without it, all are listed.
        seeds: Number of seeds to run; five are the fewest that can show a difference.
    """
    if name is None:
        return CommandOutput(experiment_command.experiment(), suggestions=["peasy experiment why-root-dk"])
    quiet = flags.quiet or flags.json
    on_status: OnStatus = ignore_status if quiet else partial(print, file=sys.stderr)
    seed = flags.seed or 0
    result = experiment_command.experiment(name, seed=seed, seeds=seeds, on_progress=on_status, store=True)
    if flags.out is not None:  # an experiment takes minutes: print the verdict, too
        sign = {Outcome.SUPPORTED: "✓", Outcome.NOT_SUPPORTED: "✗"}.get(result.outcome, "~")
        on_status(f"{sign} {result.outcome}: {result.verdict}")
    return CommandOutput(result, suggestions=["peasy experiment"])


def data(*source: str, set_: _SetFlag = None, strict: Switch = False, flags: Flags = Flags()) -> CommandOutput:
    """List the built-in datasets, or describe one: size, licence, hash, examples, invalid rows.

    Args:
        source: Built-in dataset, file, folder, or several files.
        set_: Option of the dataset: length=20, num_train=500, lines=true, ...
        strict: Fail on the first invalid row, instead of counting them.
    """
    if not source:
        return CommandOutput(data_command.data(), suggestions=["peasy data stories"])
    options = _parse_settings(set_, {"strict": True} if strict else {})
    result = data_command.data(source[0] if len(source) == 1 else source, seed=flags.seed or 0, **options)
    sizes = ", ".join(f"{split} {size.documents:,} documents" for split, size in result.card.sizes.items())
    return CommandOutput(result, summary=f"{result.card.name}: {sizes}")


def _join_data(data: Sequence[str] | None) -> str | list[str] | None:
    return None if data is None else data[0] if len(data) == 1 else list(data)


def _recipe_settings(arguments: Mapping[str, object], items: Sequence[str] | None) -> JsonDict:
    """Return the settings of --set; raise if a flag that was given is short for one of them."""
    for name, path in _SHORTCUTS.items():
        if arguments.get(name) is not None and any(item.partition("=")[0].strip() == path for item in items or ()):
            message = f"--{name.replace('_', '-')} and --set {path}= are the same setting."
            raise UsageError(message, hint="Leave out one of them.")
    return _parse_settings(items)


def _train_line(kind: str, data: Sequence[str], arguments: Mapping[str, object], items: Sequence[str] | None) -> str:
    """Return the command line that trains what was planned, for a suggestion."""
    words = [word for source in data for word in ("--data", source)]
    for name in ("preset", "minutes", "steps", "lr", "batch_size", "config"):
        if (value := arguments.get(name)) is not None:
            words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    words += [word for item in items or () for word in ("--set", item)]
    return shlex.join(["peasy", "train", kind, *words])


def _parse_settings(items: Sequence[str] | None, settings: JsonDict | None = None) -> JsonDict:
    return reduce(apply_setting, items or (), settings or {})
