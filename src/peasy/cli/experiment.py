"""`peasy experiment`."""

import sys

from peasy.cli.door import Answer, Flags


def experiment(name: str | None = None, *, flags: Flags = Flags()) -> Answer:
    """What the documents claim about attention, measured against a control.

    For example:

        peasy experiment
        peasy experiment why-root-dk
        peasy experiment matrix-form --out same.html

    Each ends with a verdict, made from its numbers, and with what it does not show.

    Args:
        name: Which one; without a name, all are listed.
    """
    from peasy.workbench.experiment import experiment as verb
    from peasy.workbench.experiment import experiments

    if name is None:
        return Answer(experiments(), next=["peasy experiment why-root-dk"])
    hear = (lambda _: None) if flags.quiet or flags.json else _say
    found = verb(name, seed=flags.seed or 0, hear=hear, keep=True)
    if flags.out is not None:  # the page has it too, but who waited for minutes wants to know now
        hear(f"{'✓' if found.holds else '✗'} {found.verdict}")
    return Answer(found, next=["peasy experiment"])


def _say(doing: str) -> None:
    print(doing, file=sys.stderr)
