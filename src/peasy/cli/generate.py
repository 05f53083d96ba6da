"""`peasy generate`."""

import random
import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from peasy.cli.choosing import Choosing
from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags, Source, read_source
from peasy.cli.stream import Pieces, say_event
from peasy.views.writing import unknown_note

if TYPE_CHECKING:
    from peasy.workbench.generate import Writer

Switch = Annotated[bool, Parameter(negative="")]


def generate(
    model: str,
    text: Source = None,
    *,
    n: int = 1,
    max_tokens: int = 64,
    long: Literal["refuse", "last"] = "refuse",
    weights: Literal["auto", "float32", "bfloat16", "int8"] = "auto",
    lookup: Switch = False,
    no_cache: Switch = False,
    show_cache: Switch = False,
    show_probabilities: Switch = False,
    lines: Switch = False,
    choosing: Choosing = Choosing(),
    flags: Flags = Flags(),
) -> Answer:
    """Let a model write on from a text; it is shown as it is written.

    For example:

        peasy generate stories "The pizza"
        peasy generate stories "The pizza" --temperature 0.8 --n 3 --seed 1
        peasy generate stories "Once" --show-probabilities --show-cache --max-tokens 12
        peasy generate stories prompts.txt --json
        cat prompt.txt | peasy generate stories -

    Ctrl-C stops; what was written stays.

    Args:
        model: A run, a folder, a built-in or a hub id.
        text: What to go on from; a file has one text on each line; - reads stdin.
        n: So many texts from each, drawn from seed, seed + 1, ...
        max_tokens: Stop after so many tokens.
        long: A prompt longer than the model's context: refuse it, or keep its last tokens.
        weights: How weights are held while writing; float32 is exact, int8 is smaller and faster.
        lookup: Guess tokens from the text so far and check several at once; the result is the same.
        no_cache: Read everything again for every token, to see what the cache is for.
        show_cache: Show what each step computed and what it reused, with and without the cache.
        show_probabilities: Show what else could have come, with its chance.
        lines: Each line of stdin is a text of its own.
    """
    from peasy.workbench.generate import Writer
    from peasy.workbench.load import load

    texts = read_source(text, "generate", lines=lines)
    how = choosing.settings() | {"max_tokens": max_tokens, "seed": pick_seed(flags, choosing.temperature)}
    told = 5 if show_probabilities else 0 if flags.json else None
    loaded = load(model, device=flags.device, offline=flags.offline, ask=asking(flags))
    writer = Writer(
        loaded, texts, n=n, weights=weights, cached=not no_cache, long=long, lookup=lookup, logprobs=told, **how
    )
    return _answer(writer, model, flags, show_cache, show_cache or show_probabilities)


def pick_seed(flags: Flags, temperature: float) -> int:
    """The seed that was given; where something is drawn, any, which is then said."""
    if flags.seed is not None:
        return flags.seed
    return random.randrange(2**31) if temperature > 0 else 0


def _answer(writer: "Writer", model: str, flags: Flags, show_cache: bool, more: bool) -> Answer:
    told, interrupted = _stream(writer, flags, more)
    if len(writer.drafts) == 1:
        writer.check()
    result = writer.result(show_cache=show_cache and not interrupted)
    if told and not flags.quiet:
        notes = [unknown_note(count)] if (count := writer.drafts[0].unknown) else []
        print(*notes, result.note, sep="\n", file=sys.stderr)
    first = writer.texts[0] if len(writer.texts[0]) < 60 else writer.texts[0][:57] + "..."
    advice = [] if more else [f'peasy generate {model} "{first}" --show-probabilities']
    return Answer(result, next=advice, exit_code=130 if interrupted else 0, told=told)


def _stream(writer: "Writer", flags: Flags, more: bool) -> tuple[bool, bool]:
    """Run it: (whether the text is on the screen already, whether it was interrupted).

    Several texts, or one with `more` beside it, are shown when they are done.
    """
    pieces = Pieces(writer.texts[0], flags) if len(writer.drafts) == 1 and not more else None
    try:
        for event in writer.events():
            if flags.json:
                say_event(event, writer.loaded.answers())
            elif pieces is not None:
                pieces.say(event)
    except KeyboardInterrupt:
        return pieces is not None and pieces.close(), True
    return pieces is not None and pieces.close(), False
