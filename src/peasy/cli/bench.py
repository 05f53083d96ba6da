"""`peasy bench`."""

import sys

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags


def bench(
    model: str,
    *,
    prompt: int = 32,
    tokens: int = 64,
    batch: int = 8,
    rounds: int = 3,
    flags: Flags = Flags(),
) -> Answer:
    """How fast a model reads and writes on this machine, by the form of its weights.

    For example:

        peasy bench stories
        peasy bench openai-community/gpt2 --tokens 128 --rounds 5

    Args:
        model: A built-in, a run, a folder or a hub id; it must be one that writes on from a text.
        prompt: How many tokens are read first.
        tokens: How many are then written.
        batch: How many texts at once, beside one alone.
        rounds: How often each is timed; the table shows medians.
    """
    from peasy.workbench import bench as room

    live = sys.stderr.isatty() and not flags.quiet

    def hear(said: str) -> None:
        print(f"\r\x1b[K{said}", end="", file=sys.stderr, flush=True)

    result = room.bench(
        model, prompt=prompt, tokens=tokens, batch=batch, rounds=rounds, seed=flags.seed or 0, offline=flags.offline,
        ask=asking(flags), hear=hear if live else None,
    )  # fmt: skip
    if live:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return Answer(result)
