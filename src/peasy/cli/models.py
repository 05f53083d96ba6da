"""`peasy models`."""

from typing import TYPE_CHECKING

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags
from peasy.errors import UsageError

if TYPE_CHECKING:
    pass


def models(*model: str, run: str | None = None, flags: Flags = Flags()) -> Answer:
    """List the models that are here, show what one of them is made of, or make a built-in one again.

    For example:

        peasy models
        peasy models stories
        peasy models ./my-model
        peasy models retrain words
        peasy models --json

    Args:
        model: The one to look at: a built-in, a folder, a run or a hub id. Or retrain and the name of a built-in.
        run: Where the retrained model goes: a name or a folder.
    """
    from peasy.workbench import models as bench

    if not model:
        found = bench.models()
        first = next((card.name for card in found.models if not card.fault), None)
        return Answer(found, next=[f"peasy models {first}"] if first else ["peasy import FOLDER"])
    if model[0] == "retrain" and len(model) == 2:
        return _retrain(model[1], run, flags)
    if len(model) > 1 or run is not None:
        raise UsageError("peasy models takes one model, or: retrain NAME.", hint="See: peasy models --help")
    return Answer(bench.model(model[0], offline=flags.offline, ask=asking(flags)))


def _retrain(name: str, run: str | None, flags: Flags) -> Answer:
    from peasy.cli.train import Screen
    from peasy.workbench.retrain import retrain

    screen = Screen(quiet=flags.quiet or flags.json)
    result = retrain(name, run=run, hear=screen.show)
    return Answer(result, exit_code=0 if result.passed else 8, brief=result.verdict)
