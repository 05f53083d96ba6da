"""`peasy train`: training with progress output."""

import json
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING

from peasy.cli.command import CommandOutput, Flags, StrList
from peasy.cli.derive import Call, derive
from peasy.cli.progress import ProgressLine
from peasy.cli.recipe_flags import SetFlag, join_data, recipe_settings, train_command
from peasy.commands import train as commands
from peasy.commands.runs import open_run
from peasy.models.preset import ModelKind
from peasy.render.json import to_plain
from peasy.training.event import Event, Finished, Sampled, Started, TrainStep, Validated, event_data
from peasy.views.training import format_duration

if TYPE_CHECKING:
    from peasy.training.signals import StopRequest


@derive(commands.train, hide=("settings", "sinks", "progress"))
def train(
    call: Call[commands.TrainResult],
    kind: ModelKind,
    *,
    data: StrList = None,
    set_: SetFlag = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Train a model on built-in or your own data.

    For example:

        peasy train gpt --data stories --minutes 2
        peasy train gpt --data my-texts/ --preset base --run my-model
        peasy train encoder --data pairs.tsv --init-from my-encoder
        peasy train gpt --data book.txt --steps 500 --lr 0.003 --batch-size 32
        peasy train gpt --data book.txt --config settings.toml --set seq_len=64 --dry-run
        peasy train gpt --data my-texts/ --num-processes 2
        peasy train gpt --run my-model --resume

    Ctrl-C saves a checkpoint and prints the command to resume; a second Ctrl-C exits at once.

    Args:
        kind: Model kind.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        set_: Override any setting: optimizer.lr=0.01, model.dropout=0.1, seq_len=128, compile=true, ... Can be
            repeated.
    """
    from peasy.training.signals import stop_on_signal

    source, settings = join_data(data), recipe_settings(call.arguments, set_)
    if call.arguments.pop("dry_run", False):
        result = call(kind, source, settings=settings, dry_run=True)
        return CommandOutput(result, suggestions=[train_command(kind, data or (), call.arguments, set_)])
    show, folder = _print_json if flags.json else TrainProgress(flags).show, None
    with stop_on_signal() as stop:
        start = Call(commands.train_events, None, call.arguments)
        events = start(kind, source, settings=settings, progress=_tokenizing_progress(stop, flags))
        for event in events:
            folder = event.run if isinstance(event, Started) else folder
            show(event)
            if stop.requested:
                events.close()
                break
    assert folder is not None, "the first event is Started"
    run = open_run(folder)
    done = [f"peasy runs show {run.name}", f"peasy models {run.name}"]
    suggestions = done if stop.signal is None else [run.resume_command()]
    return CommandOutput(
        commands.TrainResult(run), suggestions=suggestions, exit_code=130 if stop.signal == SIGINT else 0
    )


def _print_json(event: Event) -> None:
    """Print an event as one line of JSON on stdout; the result of the command is the last line."""
    print(json.dumps(to_plain(event_data(event)), ensure_ascii=False, allow_nan=False), flush=True)


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
                self.line.print(f"step {event.step:,}: {_one_line(prompt)} ▸ {_one_line(text)}")
            case TrainStep() if self.line.is_due():
                validation = "" if self.validation_loss is None else f" · validation {self.validation_loss:.3f}"
                self.line.update(
                    f"step {event.step:,} · loss {event.loss:.3f}{validation} · {event.tokens_per_second:,.0f} tokens/s"
                    f" · {format_duration(event.eta_seconds)} left"
                )
            case Finished():
                self.line.print(f"finished after {event.step:,} steps in {format_duration(event.elapsed_seconds)}")


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
    return (
        f"\nThe model uses {layers}: it trains faster, but can only be exported to ONNX. For Hugging Face and GGUF:\n"
        "  --set model.stack.token_shift=false --set model.embedding.max_ngram=1"
    )


def _one_line(text: str, limit: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _tokenizing_progress(stop: "StopRequest", flags: Flags) -> Callable[[int, int], None]:
    """Return the progress of tokenizing the data; a signal ends it at once, since there is nothing to save."""
    line = ProgressLine("tokenizing", flags)

    def show(done: int, total: int) -> None:
        if stop.requested:
            raise KeyboardInterrupt if stop.signal == SIGINT else SystemExit(0)
        line(done, total)

    return show
