"""`peasy bench`: prefill and decode speed by weight format."""

import sys

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback


def bench(
    model: str,
    *,
    prompt_tokens: int = 32,
    max_tokens: int = 64,
    batch_size: int = 8,
    repeats: int = 3,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Measure prefill and decode speed of a model on this machine, by weight format.

    For example:

        peasy bench stories
        peasy bench openai-community/gpt2 --max-tokens 128 --repeats 5

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id; must be a decoder.
        prompt_tokens: Number of prompt tokens.
        max_tokens: Number of generated tokens.
        batch_size: Batch size; batch size 1 is always measured too.
        repeats: Number of repetitions; the table shows medians.
    """
    from peasy.commands import bench as command_module

    live = sys.stderr.isatty() and not flags.quiet

    def show_status(status: str) -> None:
        print(f"\r\x1b[K{status}", end="", file=sys.stderr, flush=True)

    result = command_module.bench(
        model, prompt_tokens=prompt_tokens, max_tokens=max_tokens, batch_size=batch_size, repeats=repeats,
        seed=flags.seed or 0, offline=flags.offline, confirm=confirm_callback(flags),
        on_status=show_status if live else None,
    )  # fmt: skip
    if live:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return CommandOutput(result)
