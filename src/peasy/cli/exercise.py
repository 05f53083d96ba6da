"""`peasy exercise`: worksheets with answer keys."""

from pathlib import Path
from random import SystemRandom
from typing import Literal

from peasy.cli.command import CommandOutput, Flags, Switch


def exercise(
    *,
    size: str = "3x2",
    topic: Literal["plain", "masked", "cosine", "two-heads", "contexts"] = "plain",
    answer_key: Switch = False,
    decimals: int = 2,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Make a worksheet with small numbers, and its answer key.

    For example:

        peasy exercise --size 3x2 --seed 5
        peasy exercise --topic masked --out sheet.md
        peasy check sheet.md

    With --out sheet.md, the answer key is saved next to it as sheet-key.md.

    Args:
        size: Number of tokens x d_model.
        topic: Topic of the exercise.
        answer_key: Show the answer key instead of the worksheet.
        decimals: Number of decimals of the answers.
    """
    from peasy.commands.exercise import exercise as command

    seed = SystemRandom().randrange(10_000) if flags.seed is None else flags.seed
    sheet = command(size, seed, topic, decimals=decimals)
    files: list[Path] = []
    if flags.out is not None and not answer_key:
        key = flags.out.with_name(f"{flags.out.stem}-key{flags.out.suffix}")
        files = [sheet.save_key(key)]
    command_line = f"peasy exercise --size {size} --topic {topic} --seed {seed}"
    suggestions = (
        [f"peasy check {flags.out}"] if flags.out is not None and not answer_key else [f"{command_line} --answer-key"]
    )
    return CommandOutput(
        sheet.key() if answer_key else sheet, suggestions=suggestions, files=files, summary=f"Worksheet: {command_line}"
    )
