"""`peasy runs`: list, show, diff and delete training runs."""

from typing import Literal

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback
from peasy.errors import UsageError

_NUM_NAMES = {"ls": 0, "show": 1, "diff": 2, "rm": 1}


def runs(act: Literal["ls", "show", "diff", "rm"] = "ls", *names: str, flags: Flags = Flags()) -> CommandOutput:
    """List training runs, show one, compare two, or delete one.

    For example:

        peasy runs
        peasy runs show quiet-fox
        peasy runs diff quiet-fox brave-owl
        peasy runs rm quiet-fox

    Args:
        act: Action: ls, show, diff or rm.
        names: One or two runs, by name or folder.
    """
    from peasy.commands import runs as commands

    if len(names) != _NUM_NAMES[act]:
        expected = ("no name", "one name", "two names")[_NUM_NAMES[act]]
        raise UsageError(f"runs {act} takes {expected}, not {len(names)}.", hint="See: peasy runs --help")
    if act == "show":
        result = commands.show_run(names[0])
        finished = result.run.facts().state.startswith("finished")
        return CommandOutput(result, suggestions=[] if finished else [result.run.resume_command()])
    if act == "diff":
        return CommandOutput(commands.diff_runs(*names))
    if act == "rm":
        return CommandOutput(commands.remove_run(names[0], yes=flags.yes, ask=confirm_callback(flags)))
    listed = commands.runs()
    first = next((run.name for run in listed.runs), None)
    return CommandOutput(
        listed, suggestions=[f"peasy runs show {first}"] if first else ["peasy train gpt --data stories"]
    )
