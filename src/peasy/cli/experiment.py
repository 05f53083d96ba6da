"""`peasy experiment`: runs experiments about attention."""

import sys

from peasy.cli.door import Answer, Flags


def experiment(name: str | None = None, *, flags: Flags = Flags()) -> Answer:
    """Run an experiment that tests a claim of the lecture notes against a control.

    For example:

        peasy experiment
        peasy experiment why-root-dk
        peasy experiment matrix-form --out same.html

    Each experiment ends with a verdict from its measurements, and a caveat.

    Args:
        name: Name of the experiment; without it, all are listed.
    """
    from peasy.workbench.experiment import experiment as command
    from peasy.workbench.experiment import experiments

    if name is None:
        return Answer(experiments(), next=["peasy experiment why-root-dk"])
    on_status = (lambda _: None) if flags.quiet or flags.json else _say
    result = command(name, seed=flags.seed or 0, hear=on_status, keep=True)
    if flags.out is not None:  # an experiment takes minutes: print the verdict, too
        on_status(f"{'✓' if result.holds else '✗'} {result.verdict}")
    return Answer(result, next=["peasy experiment"])


def _say(doing: str) -> None:
    print(doing, file=sys.stderr)
