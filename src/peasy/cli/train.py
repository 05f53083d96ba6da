"""`peasy train`."""

import json
import sys
import time
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.door import Answer, Flags
from peasy.render.json import plain
from peasy.views.run import as_time

if TYPE_CHECKING:
    from peasy.training.event import Event
    from peasy.training.stop import Stop

Kind = Literal["gpt", "encoder", "translator", "rnn", "cnn", "rnn-translator", "ngram", "words"]


def train(
    kind: Kind,
    *,
    data: list[str] | None = None,
    preset: Literal["tiny", "small", "base"] | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    processes: int | None = None,
    run: str | None = None,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    flags: Flags = Flags(),
) -> Answer:
    """Train a model on built-in text or on your own.

    For example:

        peasy train gpt --data stories --minutes 2
        peasy train gpt --data my-texts/ --preset base --run my-model
        peasy train translator --data locales:en-fr
        peasy train encoder --data pairs.tsv --from my-encoder
        peasy train gpt --data book.txt --steps 500 --set tokenizer.by=characters --set keep=5
        peasy train gpt --data my-texts/ --processes 2
        peasy train gpt --run my-model --resume

    Ctrl-C saves and prints the line that goes on; a second one ends at once.

    Args:
        kind: What to train.
        data: A built-in corpus (see peasy data), a file, a folder, or several files.
        preset: The size of the model and the recipe that goes with it; small unless you say so.
        minutes: Stop after so much time; the rate of learning falls until then.
        steps: Or after so many steps.
        processes: Share every batch among so many processes on this machine.
        run: The name or the folder of the run; a new name if you give none.
        from_: Go on from this model's weights, with its tokenizer.
        set_: Change the recipe: optimizer.lr=0.01, model.dropout=0.1, keep=5, compile=true, ...
        resume: Go on where the run stands.
    """
    from peasy.config import assign
    from peasy.training.stop import stoppable
    from peasy.workbench.train import training

    settings: dict[str, Any] = {}
    for setting in set_ or ():
        settings = assign(settings, setting)
    shown = _Lines() if flags.json else Screen(quiet=flags.quiet)
    with stoppable() as stop:
        events = training(
            kind, data[0] if data and len(data) == 1 else data, preset=preset, minutes=minutes, steps=steps,
            seed=flags.seed, device=flags.device, processes=processes, run=run, from_=from_, settings=settings,
            resume=resume, progress=_Preparing(stop, quiet=flags.quiet or flags.json),
        )  # fmt: skip
        for event in events:
            shown.show(event)
            if stop.asked:
                events.close()
                break
    return _answer(shown.folder, stop.signal)


def _answer(folder: Any, signal: int | None) -> Answer:
    from peasy.workbench.runs import open_run
    from peasy.workbench.train import TrainResult

    run = open_run(folder)
    if signal is not None:
        return Answer(TrainResult(run), next=[run.resume_line()], exit_code=130 if signal == SIGINT else 0)
    return Answer(TrainResult(run), next=[f"peasy runs show {run.name}", f"peasy models {run.name}"])


class _Lines:
    """Every event as one line of JSON on stdout; the door's own result is the last."""

    folder: Any = None

    def show(self, event: "Event") -> None:
        from peasy.training.event import Started, data

        if isinstance(event, Started):
            self.folder = event.run
        print(json.dumps(plain(data(event)), ensure_ascii=False, allow_nan=False), flush=True)


class Screen:
    """One line on stderr that is written over and over: loss, validation loss, tokens per second, time left."""

    folder: Any = None

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.last = quiet, 0.0
        self.valid: float | None = None
        self.live = sys.stderr.isatty()

    def show(self, event: "Event") -> None:
        """Say what is worth a line, and write the progress over itself."""
        from peasy.training.event import Finished, Sampled, Started, Step, Validated

        if isinstance(event, Started):
            self.folder = event.run
            self._say(_started(event) + _own_parts(event.run))
        elif isinstance(event, Validated):
            self.valid = event.loss
            self._say(f"step {event.step:,}: validation loss {event.loss:.4f}")
        elif isinstance(event, Sampled) and event.texts:
            self._say(f"step {event.step:,}: {_one_line(event.prompts[0])} ▸ {_one_line(event.texts[0])}")
        elif isinstance(event, Step) and self.live and time.monotonic() - self.last > 0.1:
            self.last = time.monotonic()
            self._put(_progress(event, self.valid))
        elif isinstance(event, Finished):
            self._say(f"finished after {event.step:,} steps in {as_time(event.elapsed)}")

    def _say(self, line: str) -> None:
        if not self.quiet:
            print(f"\r\x1b[K{line}" if self.live else line, file=sys.stderr, flush=True)

    def _put(self, line: str) -> None:
        if not self.quiet:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _started(event: Any) -> str:
    said = f"run {event.run.name} · seed {event.seed} · {event.parameters:,} parameters · {event.precision}"
    where = f"{said} · goes on after step {event.step:,}" if event.step else said
    return f"{where}\n! {event.warning}" if event.warning else where


def _own_parts(run: Path) -> str:
    """What no other program knows, told before anybody trains for an hour and cannot take the model elsewhere."""
    settings = json.loads((run / "model.json").read_text(encoding="utf-8"))
    shift, ngrams = settings.get("stack", {}).get("shift"), settings.get("embedding", {}).get("ngrams", 1) > 1
    if not shift and not ngrams:
        return ""
    named = " and ".join(["token shift"] * bool(shift) + ["vectors of n-grams"] * ngrams)
    return (
        f"\nIt has {named}: it learns faster, and leaves as ONNX alone. For Hugging Face and GGUF, train it with\n"
        "  --set model.stack.shift=false --set model.embedding.ngrams=1"
    )


def _progress(event: Any, valid: float | None) -> str:
    checked = "" if valid is None else f" · validation {valid:.3f}"
    left = as_time(event.left)
    return f"step {event.step:,} · loss {event.loss:.3f}{checked} · {event.rate:,.0f} tokens/s · {left} left"


def _one_line(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


class _Preparing:
    """How far the data are cut into tokens; nothing is lost by stopping here, so a signal ends it."""

    def __init__(self, stop: "Stop", quiet: bool) -> None:
        self.stop, self.shown = stop, not quiet and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        if self.stop.asked:
            raise KeyboardInterrupt if self.stop.signal == SIGINT else SystemExit(0)
        if self.shown and total:
            end = "\n" if done >= total else ""
            print(f"\r\x1b[Kpreparing {done / total:.0%} of {total:,} characters", end=end, file=sys.stderr, flush=True)
