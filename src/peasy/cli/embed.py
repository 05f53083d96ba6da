"""`peasy embed`."""

from typing import Literal

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags, Source, read_source


def embed(
    model: str,
    *texts: Source,
    pooling: Literal["mean", "cls", "last"] | None = None,
    flags: Flags = Flags(),
) -> Answer:
    """Turn texts into vectors, and show how near they are to each other.

    For example:

        peasy embed sentences "The pizza was good." "It tasted great." "It rains."
        peasy embed sentences sentences.txt
        peasy embed sentences sentences.txt --out vectors.npy
        peasy embed sentences sentences.txt --out vectors.jsonl
        peasy embed my-gpt "The pizza" "The oven" --pooling last

    Args:
        model: A run, a folder, a built-in or a hub id.
        texts: Texts; a file or stdin (-) has one on each line.
        pooling: Mean of the tokens' vectors, the first (cls) or the last one; an encoder has its own.
    """
    from peasy.workbench.embed import embed as verb

    rows = [line for given in texts or (None,) for line in read_source(given, "embed") if line.strip()]
    found = verb(model, rows, pooling=pooling, device=flags.device, offline=flags.offline, ask=asking(flags))
    many, size = found.vectors.shape
    brief = f"{many:,} vector{'s' * (many != 1)} of {size} numbers"
    return Answer(found, next=[f"peasy embed {model} FILE --out vectors.npy"], brief=brief)
