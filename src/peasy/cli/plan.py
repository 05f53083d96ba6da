"""`peasy plan`: estimated time and memory of training."""

from peasy.cli.command import CommandOutput, Flags, StrList
from peasy.cli.derive import Call, derive
from peasy.cli.recipe_flags import SetFlag, join_data, recipe_settings, train_command
from peasy.commands import plan as commands


@derive(commands.plan, hide=("settings",))
def plan(
    call: Call[commands.PlanResult], kind: str, *, data: StrList = None, set_: SetFlag = None, flags: Flags = Flags()
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
        set_: Override any setting: optimizer.lr=0.01, model.dropout=0.1, seq_len=128, ... Can be repeated.
    """
    result = call(kind, join_data(data), settings=recipe_settings(call.arguments, set_))
    return CommandOutput(result, suggestions=[train_command(kind, data, call.arguments, set_)] if data else [])
