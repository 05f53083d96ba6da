"""`peasy compare`: several model kinds, trained with the same data, budget and seed."""

from peasy.cli.command import CommandOutput, Flags, StrList
from peasy.cli.derive import Call, derive
from peasy.cli.recipe_flags import SetFlag, join_data, recipe_settings
from peasy.cli.train import TrainProgress
from peasy.commands import compare as commands
from peasy.errors import UsageError
from peasy.models.preset import ModelKind


@derive(commands.compare, hide=("name", "settings", "on_event"))
def compare(
    call: Call[commands.CompareResult],
    *kinds: ModelKind,
    data: StrList = None,
    run: str | None = None,
    set_: SetFlag = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Train several model kinds on the same data, with the same budget and seed, and compare them.

    For example:

        peasy compare gpt rnn cnn ngram --data stories --minutes 1
        peasy compare translator rnn-translator --data locales --minutes 3 --out both.html
        peasy compare gpt rnn --data recall:32 --steps 300 --preset tiny

    Each model is a training run of its own, which can be loaded, inspected and resumed.

    Args:
        kinds: Model kinds to train, two or more.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        run: Prefix of the run names; default: a random name.
        set_: Override a setting of all recipes: seq_len=128, ...
    """
    if not data:
        raise UsageError("compare needs data.", hint="For example: --data stories. See all: peasy data")
    settings, progress = recipe_settings(call.arguments, set_), TrainProgress(flags)
    result = call(kinds, join_data(data), name=run, settings=settings, on_event=lambda _, event: progress.show(event))
    return CommandOutput(result, suggestions=[f"peasy runs show {result.facts.models[0].run}"])
