"""`peasy evaluate`: metrics of a model on a dataset."""

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback
from peasy.cli.progress import ProgressLine
from peasy.cli.recipe_flags import SetFlag, parse_settings


def evaluate(
    model: str,
    *data: str,
    split: str = "valid",
    max_samples: int | None = None,
    seq_len: int | None = None,
    set_: SetFlag = None,
    flags: Flags = Flags(),
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
        split: Data split: valid, train, test or all.
        max_samples: Maximum number of samples.
        seq_len: Sequence length in tokens; default: as in training.
        set_: Option of the dataset: lines=true, source=english, num_pairs=5000, ...
    """
    from peasy.commands.evaluate import evaluate as command
    from peasy.errors import UsageError

    if not data:
        raise UsageError("evaluate needs DATA.", hint=f"For example: peasy evaluate {model} stories")
    result = command(
        model, data[0] if len(data) == 1 else list(data), split=split, max_samples=max_samples, seq_len=seq_len,
        options=parse_settings(set_), device=flags.device, offline=flags.offline, confirm=confirm_callback(flags),
        on_progress=ProgressLine("evaluating", flags),
    )  # fmt: skip
    return CommandOutput(result, suggestions=[f"peasy models {model}"])
