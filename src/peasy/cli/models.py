"""`peasy models`."""

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags


def models(model: str | None = None, *, flags: Flags = Flags()) -> Answer:
    """List the models that are here, or show what one of them is made of.

    For example:

        peasy models
        peasy models ./my-model
        peasy models --json

    Args:
        model: The one to look at: a folder, a run or a hub id.
    """
    from peasy.workbench import models as bench

    if model is None:
        found = bench.models()
        first = next((card.name for card in found.models if not card.fault), None)
        return Answer(found, next=[f"peasy models {first}"] if first else ["peasy import FOLDER"])
    return Answer(bench.model(model, offline=flags.offline, ask=asking(flags)))
