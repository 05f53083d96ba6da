"""`peasy compare`."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.door import Answer, Flags

if TYPE_CHECKING:
    from peasy.training.event import Event

Kind = Literal["gpt", "encoder", "translator", "rnn", "cnn", "rnn-translator", "ngram", "words"]


def compare(
    *kinds: Kind,
    data: list[str] | None = None,
    preset: Literal["tiny", "small", "base"] | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    run: str | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    limit: int = 500,
    flags: Flags = Flags(),
) -> Answer:
    """Several kinds of model on the same data, with the same budget and seed.

    For example:

        peasy compare gpt rnn cnn ngram --data stories --minutes 1
        peasy compare translator rnn-translator --data locales --minutes 3 --out both.html
        peasy compare gpt rnn --data recall:32 --steps 300 --preset tiny

    Each becomes a run of its own, which can be loaded, looked at and continued.

    Args:
        kinds: What to train, two or more.
        data: A built-in corpus (see peasy data), a file, a folder, or several files.
        preset: The size of the models; small unless you say so.
        minutes: How long each learns; 1 unless you say otherwise.
        steps: Or how many steps each does.
        run: What the names of the runs begin with; a new name if you give none.
        set_: Change every recipe: context=128, ...
        limit: How many endings or pairs each is asked for.
    """
    from peasy.config import assign
    from peasy.errors import UsageError
    from peasy.workbench.compare import compare as verb

    if not data:
        raise UsageError("compare needs data.", hint="For example: --data stories. See all: peasy data")
    settings: dict[str, Any] = {}
    for setting in set_ or ():
        settings = assign(settings, setting)
    found = verb(
        kinds, data[0] if len(data) == 1 else data, preset=preset, minutes=minutes, steps=steps,
        seed=flags.seed or 0, device=flags.device, name=run, settings=settings, limit=limit,
        hear=None if flags.quiet or flags.json else _say,
    )  # fmt: skip
    best = found.facts.contenders[0]
    return Answer(found, next=[f"peasy runs show {best.run}"])


def _say(kind: str, event: "Event") -> None:
    from peasy.training.event import Started, Step, Validated

    if isinstance(event, Validated):
        print(f"{kind}, step {event.step:,}: validation loss {event.loss:.4f}", file=sys.stderr)
    elif isinstance(event, Started):
        print(f"{kind}: {event.parameters:,} parameters, seed {event.seed}", file=sys.stderr)
    elif isinstance(event, Step) and sys.stderr.isatty():
        print(f"\r\x1b[K{kind}, step {event.step:,}: loss {event.loss:.3f}", end="\r", file=sys.stderr, flush=True)
