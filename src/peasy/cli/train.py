"""`peasy train`: training with progress output."""

import json
import sys
import time
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any, Literal

from peasy.cli.command import CommandOutput, Flags, StrList, Switch
from peasy.cli.plan import plan
from peasy.cli.recipe_flags import RecipeFlags
from peasy.errors import UsageError
from peasy.render.json import to_plain
from peasy.views.training import format_duration

if TYPE_CHECKING:
    from peasy.training.event import Event
    from peasy.training.signals import StopRequest

ModelKind = Literal["gpt", "encoder", "translator", "rnn", "cnn", "rnn-translator", "ngram", "words"]


def train(
    kind: ModelKind,
    *,
    data: StrList = None,
    preset: Literal["tiny", "small", "base"] | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    num_processes: int | None = None,
    run: str | None = None,
    init_from: str | None = None,
    resume: Switch = False,
    dry_run: Switch = False,
    recipe: RecipeFlags = RecipeFlags(),
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
        preset: Size of the model and its training recipe; default: small.
        minutes: Time budget; the learning-rate schedule is stretched over it.
        steps: Number of training steps, instead of minutes.
        num_processes: Number of data-parallel processes on this machine.
        run: Name or folder of the run; default: a random name.
        init_from: Fine-tune this model: start from its weights, with its tokenizer.
        resume: Resume the run from its last checkpoint.
        dry_run: Print the estimated time and memory, as peasy plan does, and train nothing.
    """
    if dry_run:
        _check_dry_run({"--resume": resume, "--init-from": init_from, "--num-processes": num_processes})
        return plan(kind, data=data, preset=preset or "small", minutes=minutes, steps=steps, recipe=recipe, flags=flags)
    from peasy.commands.train import train_events
    from peasy.training.signals import stop_on_signal

    output = _JsonLines() if flags.json else TrainProgress(quiet=flags.quiet)
    with stop_on_signal() as stop:
        events = train_events(
            kind, data[0] if data and len(data) == 1 else data, preset=preset, minutes=minutes, steps=steps,
            seed=flags.seed, device=flags.device, num_processes=num_processes, run=run, init_from=init_from,
            resume=resume, progress=_TokenizingProgress(stop, quiet=flags.quiet or flags.json), **recipe.as_kwargs(),
        )  # fmt: skip
        for event in events:
            output.show(event)
            if stop.requested:
                events.close()
                break
    return _output(output.folder, stop.signal)


def _check_dry_run(unsupported: dict[str, object]) -> None:
    if given := [flag for flag, value in unsupported.items() if value]:
        raise UsageError(f"--dry-run does not support {given[0]}.", hint="Leave out one of them.")


def _output(folder: Any, signal: int | None) -> CommandOutput:
    from peasy.commands.runs import open_run
    from peasy.commands.train import TrainResult

    run = open_run(folder)
    if signal is not None:
        return CommandOutput(
            TrainResult(run), suggestions=[run.resume_command()], exit_code=130 if signal == SIGINT else 0
        )
    return CommandOutput(TrainResult(run), suggestions=[f"peasy runs show {run.name}", f"peasy models {run.name}"])


class _JsonLines:
    """Print every event as one line of JSON on stdout; the result of the command is the last line."""

    folder: Any = None

    def show(self, event: "Event") -> None:
        from peasy.training.event import Started, event_data

        if isinstance(event, Started):
            self.folder = event.run
        print(json.dumps(to_plain(event_data(event)), ensure_ascii=False, allow_nan=False), flush=True)


class TrainProgress:
    """Training progress on stderr: loss, validation loss, tokens per second, remaining time."""

    folder: Any = None

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.last_update = quiet, 0.0
        self.validation_loss: float | None = None
        self.is_terminal = sys.stderr.isatty()

    def show(self, event: "Event") -> None:
        """Print milestones on their own line, and update the progress line."""
        from peasy.training.event import Finished, Sampled, Started, TrainStep, Validated

        if isinstance(event, Started):
            self.folder = event.run
            self._print_line(_start_line(event) + _export_warning(event.run))
        elif isinstance(event, Validated):
            self.validation_loss = event.loss
            self._print_line(f"step {event.step:,}: validation loss {event.loss:.4f}")
        elif isinstance(event, Sampled) and event.texts:
            self._print_line(f"step {event.step:,}: {_one_line(event.prompts[0])} ▸ {_one_line(event.texts[0])}")
        elif isinstance(event, TrainStep) and self.is_terminal and time.monotonic() - self.last_update > 0.1:
            self.last_update = time.monotonic()
            self._update_line(_progress_line(event, self.validation_loss))
        elif isinstance(event, Finished):
            self._print_line(f"finished after {event.step:,} steps in {format_duration(event.elapsed_seconds)}")

    def _print_line(self, line: str) -> None:
        if not self.quiet:
            print(f"\r\x1b[K{line}" if self.is_terminal else line, file=sys.stderr, flush=True)

    def _update_line(self, line: str) -> None:
        if not self.quiet:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _start_line(event: Any) -> str:
    line = f"run {event.run.name} · seed {event.seed} · {event.num_parameters:,} parameters · {event.precision}"
    if event.step:
        line += f" · resumed after step {event.step:,}"
    return f"{line}\n! {event.warning}" if event.warning else line


def _export_warning(run: Path) -> str:
    """Return a warning about layers that no export format but ONNX supports, before a long training."""
    settings = json.loads((run / "model.json").read_text(encoding="utf-8"))
    shift, ngrams = settings.get("stack", {}).get("shift"), settings.get("embedding", {}).get("ngrams", 1) > 1
    if not shift and not ngrams:
        return ""
    layers = " and ".join(["token shift"] * bool(shift) + ["n-gram embeddings"] * ngrams)
    return (
        f"\nThe model uses {layers}: it trains faster, but can only be exported to ONNX. For Hugging Face and GGUF:\n"
        "  --set model.stack.shift=false --set model.embedding.ngrams=1"
    )


def _progress_line(event: Any, validation_loss: float | None) -> str:
    validation = "" if validation_loss is None else f" · validation {validation_loss:.3f}"
    left = format_duration(event.eta_seconds)
    rate = f"{event.tokens_per_second:,.0f} tokens/s"
    return f"step {event.step:,} · loss {event.loss:.3f}{validation} · {rate} · {left} left"


def _one_line(text: str, limit: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class _TokenizingProgress:
    """Progress of tokenizing the data; a signal ends it at once, since there is nothing to save."""

    def __init__(self, stop: "StopRequest", quiet: bool) -> None:
        self.stop, self.visible = stop, not quiet and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        if self.stop.requested:
            raise KeyboardInterrupt if self.stop.signal == SIGINT else SystemExit(0)
        if self.visible and total:
            end = "\n" if done >= total else ""
            print(
                f"\r\x1b[Ktokenizing {done / total:.0%} of {total:,} characters", end=end, file=sys.stderr, flush=True
            )
