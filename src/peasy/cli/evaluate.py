"""`peasy evaluate`: metrics of a model on a dataset."""

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.derive import Call, derive
from peasy.cli.progress import ProgressLine
from peasy.cli.recipe_flags import SetFlag, parse_settings
from peasy.commands import evaluate as commands
from peasy.errors import UsageError


@derive(commands.evaluate, hide=("options", "on_progress"))
def evaluate(
    call: Call[commands.EvaluateResult], model: str, *data: str, set_: SetFlag = None, flags: Flags = Flags()
) -> CommandOutput:
    """Evaluate a model on a dataset, by default on the validation split.

    For example:

        peasy evaluate my-model stories
        peasy evaluate my-translator locales:en-fr --max-samples 500
        peasy evaluate my-model book.txt --split all
        peasy evaluate sentences sts.tsv

    Metrics: loss, perplexity, bits per byte and accuracy for language models; BLEU, chrF and exact match for
    translators; correlation with human similarity scores (STS) for sentence encoders, from a .tsv file with two
    sentences and a score in each row.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        set_: Option of the dataset: lines=true, source=english, num_pairs=5000, ...
    """
    if not data:
        raise UsageError("evaluate needs DATA.", hint=f"For example: peasy evaluate {model} stories")
    source, progress = data[0] if len(data) == 1 else list(data), ProgressLine("evaluating", flags)
    result = call(model, source, options=parse_settings(set_), on_progress=progress)
    return CommandOutput(result, suggestions=[f"peasy models {model}"])
