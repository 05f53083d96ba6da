"""`peasy generate`."""

import random
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags, Source, read_source
from peasy.cli.stream import Pieces, say_event

if TYPE_CHECKING:
    from peasy.workbench.generate import Writer

Switch = Annotated[bool, Parameter(negative="")]


def generate(
    model: str,
    text: Source = None,
    *,
    n: int = 1,
    max_tokens: int = 64,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    stop: Annotated[list[str] | None, Parameter(negative="")] = None,
    long: Literal["refuse", "last"] = "refuse",
    weights: Literal["auto", "float32", "bfloat16", "int8"] = "auto",
    lookup: Switch = False,
    no_cache: Switch = False,
    show_cache: Switch = False,
    show_probabilities: Switch = False,
    lines: Switch = False,
    flags: Flags = Flags(),
) -> Answer:
    """Let a model write on from a text; it is shown as it is written.

    For example:

        peasy generate stories "The pizza"
        peasy generate stories "The pizza" --temperature 0.8 --n 3 --seed 1
        peasy generate stories "Once" --show-probabilities --max-tokens 12
        peasy generate stories "Once" --show-cache --max-tokens 12
        peasy generate stories prompts.txt --json
        cat prompt.txt | peasy generate stories -

    Ctrl-C stops; what was written stays.

    Args:
        model: A run, a folder, a built-in or a hub id.
        text: What to go on from; a file has one text on each line; - reads stdin.
        n: So many texts from each, drawn from seed, seed + 1, ...
        max_tokens: Stop after so many tokens.
        temperature: 0 takes the best token each time; higher is more daring.
        top_k: Draw only from so many of the likeliest tokens.
        top_p: Draw only from the likeliest tokens that have this share together.
        min_p: Draw only from tokens with this share of the likeliest one's chance.
        repetition_penalty: Above 1, tokens that were there already are less likely.
        presence_penalty: Taken from the score of every token that was written before.
        frequency_penalty: The same, for each time it was written.
        stop: End before this text; may be given several times.
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

    seed = flags.seed if flags.seed is not None else random.randrange(2**31) if temperature > 0 else 0
    texts = read_source(text, "generate", lines=lines)
    how: dict[str, Any] = {
        "max_tokens": max_tokens, "temperature": temperature, "seed": seed, "top_k": top_k, "top_p": top_p,
        "min_p": min_p, "repetition_penalty": repetition_penalty, "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty, "stop": tuple(stop or ()),
        "logprobs": 5 if show_probabilities else 0 if flags.json else None,
    }  # fmt: skip
    loaded = load(model, device=flags.device, offline=flags.offline, ask=asking(flags))
    writer = Writer(loaded, texts, n=n, weights=weights, cached=not no_cache, long=long, lookup=lookup, **how)
    told, interrupted = _stream(writer, flags)
    if len(texts) == n == 1:
        writer.check()
    result = writer.result(show_cache=show_cache and not interrupted)
    more = show_cache or show_probabilities
    if told and not flags.quiet and not more:
        print(result.note, file=sys.stderr)
    first = texts[0] if len(texts[0]) < 60 else texts[0][:57] + "..."
    advice = [] if more else [f'peasy generate {model} "{first}" --show-probabilities']
    return Answer(result, next=advice, exit_code=130 if interrupted else 0, told=told and not more)


def _stream(writer: "Writer", flags: Flags) -> tuple[bool, bool]:
    """Run it: (whether the text is on the screen already, whether it was interrupted)."""
    pieces = Pieces(writer.texts[0], flags) if len(writer.drafts) == 1 else None
    try:
        for event in writer.events():
            if flags.json:
                say_event(event, writer.loaded.answers())
            elif pieces is not None:
                pieces.say(event)
    except KeyboardInterrupt:
        return pieces is not None and pieces.close(), True
    return pieces is not None and pieces.close(), False
