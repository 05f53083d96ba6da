"""`peasy compare`: several model kinds, trained with the same data, budget and seed."""

import sys
from typing import TYPE_CHECKING, Literal

from peasy.cli.command import CommandOutput, Flags, StrList
from peasy.cli.recipe_flags import SetFlag, parse_settings

if TYPE_CHECKING:
    from peasy.training.event import Event

ModelKind = Literal["gpt", "encoder", "translator", "rnn", "cnn", "rnn-translator", "ngram", "words"]


def compare(
    *kinds: ModelKind,
    data: StrList = None,
    preset: Literal["tiny", "small", "base"] | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    run: str | None = None,
    set_: SetFlag = None,
    max_samples: int = 500,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Train several model kinds on the same data, with the same budget and seed, and compare them.

    For example:

        peasy compare gpt rnn cnn ngram --data stories --minutes 1
        peasy compare translator rnn-translator --data locales --minutes 3 --out both.html
        peasy compare gpt rnn --data recall:32 --steps 300 --preset tiny

    Each model is a training run of its own, which can be loaded, inspected and resumed.

    Args:
        kinds: Model kinds to train, two or more.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        preset: Size of the models; default: small.
        minutes: Training time of each model; default: 1.
        steps: Number of training steps of each model, instead of minutes.
        run: Prefix of the run names; default: a random name.
        set_: Override a setting of all recipes: seq_len=128, ...
        max_samples: Maximum number of samples to evaluate on.
    """
    from peasy.commands.compare import compare as command
    from peasy.errors import UsageError

    if not data:
        raise UsageError("compare needs data.", hint="For example: --data stories. See all: peasy data")
    result = command(
        kinds, data[0] if len(data) == 1 else data, preset=preset, minutes=minutes, steps=steps,
        seed=flags.seed or 0, device=flags.device, name=run, settings=parse_settings(set_), max_samples=max_samples,
        on_event=None if flags.quiet or flags.json else _print_event,
    )  # fmt: skip
    best = result.facts.models[0]
    return CommandOutput(result, suggestions=[f"peasy runs show {best.run}"])


def _print_event(kind: str, event: "Event") -> None:
    from peasy.training.event import Started, TrainStep, Validated

    if isinstance(event, Validated):
        print(f"{kind}, step {event.step:,}: validation loss {event.loss:.4f}", file=sys.stderr)
    elif isinstance(event, Started):
        print(f"{kind}: {event.num_parameters:,} parameters, seed {event.seed}", file=sys.stderr)
    elif isinstance(event, TrainStep) and sys.stderr.isatty():
        print(f"\r\x1b[K{kind}, step {event.step:,}: loss {event.loss:.3f}", end="\r", file=sys.stderr, flush=True)
