"""`peasy exercise`: worksheets with answer keys."""

from random import SystemRandom

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.derive import Call, derive
from peasy.commands import exercise as commands


@derive(commands.exercise)
def exercise(call: Call[commands.Worksheet], *, flags: Flags = Flags()) -> CommandOutput:
    """Make a worksheet with small numbers, and its answer key.

    For example:

        peasy exercise --size 3x2 --seed 5
        peasy exercise --topic masked --out sheet.md
        peasy check sheet.md

    With --out sheet.md, the answer key is saved next to it as sheet-key.md.
    """
    seed = SystemRandom().randrange(10_000) if flags.seed is None else flags.seed
    sheet = call(seed=seed)
    size, topic = (call.arguments.get(name, default) for name, default in (("size", "3x2"), ("topic", "plain")))
    command_line = f"peasy exercise --size {size} --topic {topic} --seed {seed}"
    files, suggestions = [], [f"{command_line} --answer-key"]
    if flags.out is not None and not sheet.with_answers:
        files = [sheet.save_key(flags.out.with_name(f"{flags.out.stem}-key{flags.out.suffix}"))]
        suggestions = [f"peasy check {flags.out}"]
    return CommandOutput(sheet, suggestions=suggestions, files=files, summary=f"Worksheet: {command_line}")
