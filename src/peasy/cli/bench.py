"""`peasy bench`: prefill and decode speed by weight format."""

import sys

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback


def bench(
    model: str,
    *,
    prompt: int = 32,
    tokens: int = 64,
    batch: int = 8,
    rounds: int = 3,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Measure prefill and decode speed of a model on this machine, by weight format.

    For example:

        peasy bench stories
        peasy bench openai-community/gpt2 --tokens 128 --rounds 5

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id; must be a decoder.
        prompt: Number of prompt tokens.
        tokens: Number of generated tokens.
        batch: Batch size; batch size 1 is always measured too.
        rounds: Number of repetitions; the table shows medians.
    """
    from peasy.commands import bench as command_module

    live = sys.stderr.isatty() and not flags.quiet

    def show_status(status: str) -> None:
        print(f"\r\x1b[K{status}", end="", file=sys.stderr, flush=True)

    result = command_module.bench(
        model, prompt=prompt, tokens=tokens, batch=batch, rounds=rounds, seed=flags.seed or 0, offline=flags.offline,
        ask=confirm_callback(flags), hear=show_status if live else None,
    )  # fmt: skip
    if live:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return CommandOutput(result)
