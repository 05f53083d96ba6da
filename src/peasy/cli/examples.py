"""`peasy examples`: lists the worked examples."""

from peasy.cli.command import CommandOutput, Flags


def examples(*, flags: Flags = Flags()) -> CommandOutput:
    """List the worked examples that peasy explain knows by name.

    For example:

        peasy examples
    """
    from peasy.commands.examples import examples as command

    return CommandOutput(command(), suggestions=["peasy explain i-love-ai"])
