"""`peasy evaluate`: metrics of a model on a dataset."""

from typing import Annotated, Any

from cyclopts import Parameter

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback
from peasy.cli.progress import ProgressLine


def evaluate(
    model: str,
    *data: str,
    split: str = "valid",
    limit: int | None = None,
    context: int | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Evaluate a model on a dataset, by default on the validation split.

    For example:

        peasy evaluate my-model stories
        peasy evaluate my-translator locales:en-fr --limit 500
        peasy evaluate my-model book.txt --split all
        peasy evaluate sentences sts.tsv

    Metrics: loss, perplexity, bits per byte and accuracy for language models; BLEU, chrF and exact match for
    translators; correlation with human similarity scores (STS) for sentence encoders, from a .tsv file with two
    sentences and a score in each row.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        split: Data split: valid, train, test or all.
        limit: Maximum number of samples.
        context: Context length in tokens; default: as in training.
        set_: Option of the dataset: lines=true, source=english, size=5000, ...
    """
    from peasy.commands.evaluate import evaluate as command
    from peasy.config import apply_setting
    from peasy.errors import UsageError

    if not data:
        raise UsageError("evaluate needs DATA.", hint=f"For example: peasy evaluate {model} stories")
    options: dict[str, Any] = {}
    for setting in set_ or ():
        options = apply_setting(options, setting)
    result = command(
        model, data[0] if len(data) == 1 else list(data), split=split, limit=limit, context=context, options=options,
        device=flags.device, offline=flags.offline, ask=confirm_callback(flags), progress=ProgressLine("evaluating", flags),
    )  # fmt: skip
    return CommandOutput(result, suggestions=[f"peasy models {model}"])
