"""`peasy models`: lists, describes and retrains models."""

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags
from peasy.errors import UsageError


def models(*model: str, run: str | None = None, flags: Flags = Flags()) -> Answer:
    """List the available models, describe one, or retrain a built-in one.

    For example:

        peasy models
        peasy models stories
        peasy models ./my-model
        peasy models retrain words
        peasy models --json

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id. Or: retrain and the name of a built-in model.
        run: Run name or folder of the retrained model.
    """
    from peasy.workbench import models as commands

    if not model:
        result = commands.models()
        first = next((card.name for card in result.models if not card.fault), None)
        return Answer(result, next=[f"peasy models {first}"] if first else ["peasy import FOLDER"])
    if model[0] == "retrain" and len(model) == 2:
        return _retrain(model[1], run, flags)
    if len(model) > 1 or run is not None:
        raise UsageError("peasy models takes one model, or: retrain NAME.", hint="See: peasy models --help")
    return Answer(commands.model(model[0], offline=flags.offline, ask=asking(flags)))


def _retrain(name: str, run: str | None, flags: Flags) -> Answer:
    from peasy.cli.train import Screen
    from peasy.workbench.retrain import retrain

    progress = Screen(quiet=flags.quiet or flags.json)
    result = retrain(name, run=run, hear=progress.show)
    return Answer(result, exit_code=0 if result.passed else 8, brief=result.verdict)
