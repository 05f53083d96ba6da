"""`peasy check`: checks attention tables calculated by hand."""

from pathlib import Path

from peasy.cli.command import CommandOutput, Flags
from peasy.commands import check as commands


def check(file: Path, /, *, flags: Flags = Flags()) -> CommandOutput:
    """Find mistakes in attention tables calculated by hand.

    Every table is calculated again as far as the given tables allow. A cell is right if it agrees at its own number
    of decimals. Exit code 8 if something is wrong, 0 otherwise.

    For example:

        peasy check my-notes.md
        peasy check worksheet.tex --json
        peasy check notes-i-love-ai

    Args:
        file: A .toml, .md, .tex or .csv file with the name of the step above each table, or built-in lecture notes.
    """
    result = commands.check(file)
    suggestions = [] if result.passed else [f"peasy check {file} --out checked.html"]
    return CommandOutput(result, suggestions=suggestions, exit_code=0 if result.passed else 8, summary=result.verdict)
