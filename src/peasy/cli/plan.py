"""`peasy plan`: estimated time and memory of training."""

import shlex
from typing import Literal

from peasy.cli.command import CommandOutput, Flags, StrList
from peasy.cli.recipe_flags import RecipeFlags


def plan(
    kind: str,
    *,
    data: StrList = None,
    preset: Literal["tiny", "small", "base"] = "small",
    minutes: float | None = None,
    steps: int | None = None,
    accelerators: int | None = None,
    flops: str | None = None,
    memory: str | None = None,
    bandwidth: str | None = None,
    mfu: float = 0.4,
    recipe: RecipeFlags = RecipeFlags(),
    flags: Flags = Flags(),
) -> CommandOutput:
    """Estimate the time and memory of training.

    For example:

        peasy plan gpt --data stories --minutes 2
        peasy plan translator --data locales --steps 1000 --preset tiny
        peasy plan gpt --data my-texts/ --batch-size 64 --set model.d_model=256
        peasy plan gpt2 --accelerators 8 --flops 312T --memory 80GB --bandwidth 300GB/s

    With --data, speed is measured with a few training steps on this machine. For other hardware, give its
    specifications: the plan is then calculated, with every formula shown.

    Args:
        kind: Model kind: gpt, encoder, translator, ...; for other hardware also a known model such as gpt2.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        preset: Size of the model.
        minutes: Training time.
        steps: Number of training steps, instead of minutes.
        accelerators: Number of accelerators.
        flops: FLOP/s of each accelerator, such as 312T.
        memory: Memory of each accelerator, such as 80GB.
        bandwidth: Interconnect bandwidth of each accelerator, such as 300GB/s.
        mfu: Model FLOPs utilization (MFU), from 0 to 1.
    """
    from peasy.commands.plan import plan as command

    result = command(
        kind, data[0] if data and len(data) == 1 else data, preset=preset, minutes=minutes, steps=steps,
        seed=flags.seed, device=flags.device, accelerators=accelerators, flops=flops,
        memory=memory, bandwidth=bandwidth, mfu=mfu, **recipe.as_kwargs(),
    )  # fmt: skip
    if not data:
        return CommandOutput(result)
    budget = f" --minutes {minutes:g}" if minutes is not None else f" --steps {steps}" if steps is not None else ""
    data_flags = "".join(f" --data {shlex.quote(source)}" for source in data)
    command_line = f"peasy train {kind}{data_flags} --preset {preset}{budget}{recipe.as_args()}"
    return CommandOutput(result, suggestions=[command_line])
