"""`peasy plan`."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.door import Answer, Flags


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
) -> Answer:
    """What training would need, before anything starts.

    For example:

        peasy plan gpt --data stories --minutes 2
        peasy plan translator --data locales --steps 1000 --preset tiny
        peasy plan gpt2 --accelerators 8 --flops 312T --memory 80GB --bandwidth 300GB/s

    With --data, a few real steps on this machine tell how fast it goes. For a machine that you do not have, say its
    numbers: the plan is then worked out on paper, with every formula shown.

    Args:
        kind: What would be trained: gpt, encoder, translator, ...; on paper also a known model such as gpt2.
        data: A built-in corpus (see peasy data), a file, a folder, or several files.
        preset: The size of the model.
        minutes: The time it should take.
        steps: Or how many steps it should do.
        set_: Change the recipe: batch=64, model.d_model=256, ...
        accelerators: On paper: how many there are.
        flops: On paper: what each can do in a second, such as 312T.
        memory: On paper: what each holds, such as 80GB.
        bandwidth: On paper: what each sends in a second, such as 300GB/s.
        use: On paper: the share of the FLOP/s that training gets.
    """
    from peasy.config import assign
    from peasy.workbench.plan import plan as verb

    settings: dict[str, Any] = {}
    for setting in set_ or ():
        settings = assign(settings, setting)
    found = verb(
        kind, data[0] if data and len(data) == 1 else data, preset=preset, minutes=minutes, steps=steps,
        seed=flags.seed, device=flags.device, settings=settings, accelerators=accelerators, flops=flops,
        memory=memory, bandwidth=bandwidth, use=use,
    )  # fmt: skip
    asked = f" --data {' '.join(data)}" if data else ""
    return Answer(found, next=[f"peasy train {kind}{asked} --preset {preset}"] if data else [])
