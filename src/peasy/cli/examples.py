"""`peasy examples`: lists the worked examples."""

from peasy.cli.command import CommandOutput, Flags
from peasy.commands import examples as commands


def examples(*, flags: Flags = Flags()) -> CommandOutput:
    """List the worked examples that peasy explain knows by name.

    For example:

        peasy examples
    """
    return CommandOutput(commands.examples(), suggestions=["peasy explain i-love-ai"])
