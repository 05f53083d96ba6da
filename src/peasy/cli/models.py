"""`peasy models`: lists, describes and retrains models."""

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback
from peasy.errors import UsageError


def models(*model: str, run: str | None = None, flags: Flags = Flags()) -> CommandOutput:
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
    from peasy.commands import models as commands

    if not model:
        result = commands.models()
        first = next((card.name for card in result.models if not card.error), None)
        return CommandOutput(result, suggestions=[f"peasy models {first}"] if first else ["peasy import FOLDER"])
    if model[0] == "retrain" and len(model) == 2:
        return _retrain(model[1], run, flags)
    if len(model) > 1 or run is not None:
        raise UsageError("peasy models takes one model, or: retrain NAME.", hint="See: peasy models --help")
    return CommandOutput(commands.model(model[0], offline=flags.offline, ask=confirm_callback(flags)))


def _retrain(name: str, run: str | None, flags: Flags) -> CommandOutput:
    from peasy.cli.train import TrainProgress
    from peasy.commands.retrain import retrain

    progress = TrainProgress(quiet=flags.quiet or flags.json)
    result = retrain(name, run=run, hear=progress.show)
    return CommandOutput(result, exit_code=0 if result.passed else 8, summary=result.verdict)
