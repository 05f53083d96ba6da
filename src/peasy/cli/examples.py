"""`peasy examples`."""

from peasy.cli.door import Answer, Flags


def examples(*, flags: Flags = Flags()) -> Answer:
    """What can be explained by name.

    For example:

        peasy examples
    """
    from peasy.workbench.examples import examples as verb

    return Answer(verb(), next=["peasy explain i-love-ai"])
