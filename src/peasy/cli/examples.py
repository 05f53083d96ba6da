"""`peasy examples`: lists the worked examples."""

from peasy.cli.door import Answer, Flags


def examples(*, flags: Flags = Flags()) -> Answer:
    """List the worked examples that peasy explain knows by name.

    For example:

        peasy examples
    """
    from peasy.workbench.examples import examples as command

    return Answer(command(), next=["peasy explain i-love-ai"])
