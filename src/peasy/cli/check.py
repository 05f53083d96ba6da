"""`peasy check`."""

from pathlib import Path

from peasy.cli.door import Answer, Flags


def check(file: Path, /, *, flags: Flags = Flags()) -> Answer:
    """Find the wrong cells in hand-worked tables.

    Every table is worked out again as far as what is given allows. A cell is right when it agrees at its
    author's own number of decimals. Exit code 8 when something is wrong, 0 otherwise.

    For example:

        peasy check my-notes.md
        peasy check worksheet.tex --json
        peasy check 003-i-love-ai

    Args:
        file: A .toml, .md, .tex or .csv file with the step above each table, or a document of the library.
    """
    from peasy.workbench.check import check as verb

    result = verb(file)
    advice = [] if result.passed else [f"peasy check {file} --out checked.html"]
    return Answer(result, next=advice, exit_code=0 if result.passed else 8, brief=result.verdict)
