"""`peasy plan`: estimated time and memory of training."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.command import CommandOutput, Flags


def plan(
    kind: str,
    *,
    data: list[str] | None = None,
    preset: Literal["tiny", "small", "base"] = "small",
    minutes: float | None = None,
    steps: int | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    accelerators: int | None = None,
    flops: str | None = None,
    memory: str | None = None,
    bandwidth: str | None = None,
    use: float = 0.4,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Estimate the time and memory of training.

    For example:

        peasy plan gpt --data stories --minutes 2
        peasy plan translator --data locales --steps 1000 --preset tiny
        peasy plan gpt2 --accelerators 8 --flops 312T --memory 80GB --bandwidth 300GB/s

    With --data, speed is measured with a few training steps on this machine. For other hardware, give its
    specifications: the plan is then calculated, with every formula shown.

    Args:
        kind: Model kind: gpt, encoder, translator, ...; for other hardware also a known model such as gpt2.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        preset: Size of the model.
        minutes: Training time.
        steps: Number of training steps, instead of minutes.
        set_: Override a setting of the recipe: batch=64, model.d_model=256, ...
        accelerators: Number of accelerators.
        flops: FLOP/s of each accelerator, such as 312T.
        memory: Memory of each accelerator, such as 80GB.
        bandwidth: Interconnect bandwidth of each accelerator, such as 300GB/s.
        use: Model FLOPs utilization (MFU), from 0 to 1.
    """
    from peasy.commands.plan import plan as command
    from peasy.config import apply_setting

    settings: dict[str, Any] = {}
    for setting in set_ or ():
        settings = apply_setting(settings, setting)
    result = command(
        kind, data[0] if data and len(data) == 1 else data, preset=preset, minutes=minutes, steps=steps,
        seed=flags.seed, device=flags.device, settings=settings, accelerators=accelerators, flops=flops,
        memory=memory, bandwidth=bandwidth, use=use,
    )  # fmt: skip
    data_flag = f" --data {' '.join(data)}" if data else ""
    return CommandOutput(result, suggestions=[f"peasy train {kind}{data_flag} --preset {preset}"] if data else [])
