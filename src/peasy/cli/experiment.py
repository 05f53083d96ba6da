"""`peasy experiment`: runs experiments about attention."""

import sys

from peasy.cli.command import CommandOutput, Flags


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
    from peasy.experiments.experiment import experiment as command

    if name is None:
        return CommandOutput(command(), suggestions=["peasy experiment why-root-dk"])
    on_status = (lambda _: None) if flags.quiet or flags.json else _print_status
    result = command(name, seed=flags.seed or 0, on_progress=on_status, store=True)
    if flags.out is not None:  # an experiment takes minutes: print the verdict, too
        on_status(f"{'✓' if result.holds else '✗'} {result.verdict}")
    return CommandOutput(result, suggestions=["peasy experiment"])


def _print_status(status: str) -> None:
    print(status, file=sys.stderr)
