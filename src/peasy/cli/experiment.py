"""`peasy experiment`: runs experiments about attention."""

import sys
from functools import partial

from peasy.cli.command import CommandOutput, Flags
from peasy.experiments import experiment as commands
from peasy.experiments.result import OnStatus, ignore_status


def experiment(name: str | None = None, *, flags: Flags = Flags()) -> CommandOutput:
    """Run an experiment that tests a claim of the lecture notes against a control.

    For example:

        peasy experiment
        peasy experiment why-root-dk
        peasy experiment matrix-form --out same.html

    Each experiment ends with a verdict from its measurements, and a caveat.

    Args:
        name: Name of the experiment; without it, all are listed.
    """
    if name is None:
        return CommandOutput(commands.experiment(), suggestions=["peasy experiment why-root-dk"])
    quiet = flags.quiet or flags.json
    on_status: OnStatus = ignore_status if quiet else partial(print, file=sys.stderr)
    result = commands.experiment(name, seed=flags.seed or 0, on_progress=on_status, store=True)
    if flags.out is not None:  # an experiment takes minutes: print the verdict, too
        on_status(f"{'✓' if result.holds else '✗'} {result.verdict}")
    return CommandOutput(result, suggestions=["peasy experiment"])
