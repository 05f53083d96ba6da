"""`peasy exercise`."""

from pathlib import Path
from random import SystemRandom
from typing import Annotated, Literal

from cyclopts import Parameter

from peasy.cli.door import Answer, Flags


def exercise(
    *,
    size: str = "3x2",
    topic: Literal["plain", "masked", "cosine", "two-heads", "contexts"] = "plain",
    answers: Annotated[bool, Parameter(negative="")] = False,
    decimals: int = 2,
    flags: Flags = Flags(),
) -> Answer:
    """A worksheet with small numbers, and its answer key.

    For example:

        peasy exercise --size 3x2 --seed 5
        peasy exercise --topic masked --out sheet.md
        peasy check sheet.md

    With --out sheet.md, the answer key is written beside it as sheet-key.md.

    Args:
        size: Tokens x width.
        topic: What to practise.
        answers: Show the answer key instead of the sheet.
        decimals: How many decimals the answers get.
    """
    from peasy.workbench.exercise import exercise as verb

    seed = SystemRandom().randrange(10_000) if flags.seed is None else flags.seed
    sheet = verb(size, seed, topic, decimals=decimals)
    files: list[Path] = []
    if flags.out is not None and not answers:
        key = flags.out.with_name(f"{flags.out.stem}-key{flags.out.suffix}")
        files = [sheet.save_key(key)]
    again = f"peasy exercise --size {size} --topic {topic} --seed {seed}"
    then = [f"peasy check {flags.out}"] if flags.out is not None and not answers else [f"{again} --answers"]
    return Answer(sheet.key() if answers else sheet, next=then, files=files, brief=f"A worksheet: {again}")
