"""`peasy runs`: lists, shows, compares and deletes training runs."""

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback


def runs(*, flags: Flags = Flags()) -> CommandOutput:
    """List the training runs; subcommands show one, compare two, or delete one.

    For example:

        peasy runs
        peasy runs show quiet-fox
        peasy runs diff quiet-fox brave-owl
        peasy runs rm quiet-fox
    """
    return runs_list(flags=flags)


def runs_list(*, flags: Flags = Flags()) -> CommandOutput:
    """List the training runs.

    For example:

        peasy runs list
        peasy runs list --json
    """
    from peasy.commands import runs as commands

    listed = commands.runs()
    first = next((run.name for run in listed.runs), None)
    return CommandOutput(
        listed, suggestions=[f"peasy runs show {first}"] if first else ["peasy train gpt --data stories"]
    )


def runs_show(name: str, /, *, flags: Flags = Flags()) -> CommandOutput:
    """Show a training run: settings, state, losses and samples.

    For example:

        peasy runs show quiet-fox
        peasy runs show ./my-run --out run.html

    Args:
        name: Run, by name or folder.
    """
    from peasy.commands import runs as commands

    result = commands.show_run(name)
    finished = result.run.facts().state.startswith("finished")
    return CommandOutput(result, suggestions=[] if finished else [result.run.resume_command()])


def runs_diff(left: str, right: str, /, *, flags: Flags = Flags()) -> CommandOutput:
    """Compare two training runs: settings and losses that differ.

    For example:

        peasy runs diff quiet-fox brave-owl
        peasy runs diff quiet-fox ./my-run --json

    Args:
        left: Run, by name or folder.
        right: Run to compare it with.
    """
    from peasy.commands import runs as commands

    return CommandOutput(commands.diff_runs(left, right))


def runs_rm(name: str, /, *, flags: Flags = Flags()) -> CommandOutput:
    """Delete a training run with all its checkpoints; asks first unless --yes is given.

    For example:

        peasy runs rm quiet-fox
        peasy runs rm quiet-fox --yes

    Args:
        name: Run, by name or folder.
    """
    from peasy.commands import runs as commands

    return CommandOutput(commands.remove_run(name, yes=flags.yes, confirm=confirm_callback(flags)))
