"""Commands for models, runs and cached files: `peasy models`, `runs`, `cache`."""

from peasy.cli.command import CommandOutput, Flags, confirm_callback
from peasy.commands import cache as cache_command
from peasy.commands import models as models_command
from peasy.commands import runs as runs_command


def models(name: str | None = None, /, *, flags: Flags = Flags()) -> CommandOutput:
    """List the available models, or show one; subcommands delete or retrain one.

    Args:
        name: Model to show: run name, folder, built-in model or Hugging Face hub id.
    """
    return models_list(flags=flags) if name is None else models_show(name, flags=flags)


def models_list(*, flags: Flags = Flags()) -> CommandOutput:
    """List the available models: built-in, trained, imported, and in the Hugging Face cache."""
    result = models_command.models()
    usable = (f"peasy models show {entry.name}" for entry in result.models if not entry.error)
    return CommandOutput(result, suggestions=[next(usable, "peasy import FOLDER")])


def models_show(name: str, /, *, flags: Flags = Flags()) -> CommandOutput:
    """Show the architecture of a model, and the card of a built-in one, without loading its weights.

    Args:
        name: Run name, folder, built-in model or Hugging Face hub id.
    """
    return CommandOutput(models_command.model(name, offline=flags.offline, confirm=confirm_callback(flags)))


def models_rm(name: str, /, *, flags: Flags = Flags()) -> CommandOutput:
    """Delete a trained or imported model; asks first unless --yes is given. Built-in models cannot be deleted.

    Args:
        name: Run name or folder.
    """
    return CommandOutput(models_command.remove_model(name, yes=flags.yes, confirm=confirm_callback(flags)))


def models_retrain(name: str, /, *, run: str | None = None, flags: Flags = Flags()) -> CommandOutput:
    """Train a built-in model again from its recipe, and compare it with the one shipped; exit code 8 if it differs.

    Args:
        name: Built-in model.
        run: Run name or folder of the retrained model; default: a random name.
    """
    from peasy.cli.training import TrainProgress
    from peasy.commands.retrain import retrain

    result = retrain(name, run=run, on_event=TrainProgress(flags).show)
    return CommandOutput(result, exit_code=0 if result.passed else 8, summary=result.verdict)


def runs(*, flags: Flags = Flags()) -> CommandOutput:
    """List the training runs; subcommands show one, compare two, or delete one."""
    return runs_list(flags=flags)


def runs_list(*, flags: Flags = Flags()) -> CommandOutput:
    """List the training runs."""
    listed = runs_command.runs()
    first = next((f"peasy runs show {run.name}" for run in listed.runs), "peasy train gpt --data stories")
    return CommandOutput(listed, suggestions=[first])


def runs_show(name: str, /, *, flags: Flags = Flags()) -> CommandOutput:
    """Show a training run: settings, state, losses and samples.

    Args:
        name: Run, by name or folder.
    """
    run = runs_command.open_run(name)
    finished = run.facts().state.startswith("finished")
    return CommandOutput(run, suggestions=[] if finished else [run.resume_command()])


def runs_diff(left: str, right: str, /, *, flags: Flags = Flags()) -> CommandOutput:
    """Compare two training runs: settings and losses that differ.

    Args:
        left: Run, by name or folder.
        right: Run to compare it with.
    """
    return CommandOutput(runs_command.diff_runs(left, right))


def runs_rm(name: str, /, *, flags: Flags = Flags()) -> CommandOutput:
    """Delete a training run with all its checkpoints; asks first unless --yes is given.

    Args:
        name: Run, by name or folder.
    """
    return CommandOutput(runs_command.remove_run(name, yes=flags.yes, confirm=confirm_callback(flags)))


def cache(*, flags: Flags = Flags()) -> CommandOutput:
    """List the files that peasy can make or download again, with folder and size; a subcommand deletes them."""
    return cache_list(flags=flags)


def cache_list(*, flags: Flags = Flags()) -> CommandOutput:
    """List the files that peasy can make or download again, with folder and size."""
    result = cache_command.cache()
    largest = max(result.folders, key=lambda folder: folder.num_bytes)
    return CommandOutput(result, suggestions=[f"peasy cache rm {largest.name}"] if largest.num_bytes else [])


def cache_rm(*names: str, flags: Flags = Flags()) -> CommandOutput:
    """Delete files that peasy can make or download again; asks first unless --yes is given.

    Args:
        names: Folders by name, as `peasy cache` lists them; without a name all but the hub's, which others share.
    """
    return CommandOutput(cache_command.remove_cache(*names, yes=flags.yes, confirm=confirm_callback(flags)))
