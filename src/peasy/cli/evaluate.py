"""`peasy evaluate`."""

from typing import Annotated, Any

from cyclopts import Parameter

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags
from peasy.cli.meter import Meter


def evaluate(
    model: str,
    *data: str,
    split: str = "valid",
    limit: int | None = None,
    context: int | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    flags: Flags = Flags(),
) -> Answer:
    """How good a model is on data that it has not learned from.

    For example:

        peasy evaluate my-model stories
        peasy evaluate my-translator locales:en-fr --limit 500
        peasy evaluate my-model book.txt --split all
        peasy evaluate sentences sts.tsv

    Language models get loss, perplexity, bits per byte and accuracy; translators BLEU, chrF and exact matches;
    sentence encoders their correlation with people's scores, from a .tsv with two sentences and a score in each row.

    Args:
        model: A run, a folder, a built-in or a hub id.
        data: A built-in corpus (see peasy data), a file, a folder, or several files.
        split: What of it: valid (held out), train, test or all.
        limit: Only the first so many pairs, endings or sentences.
        context: How many tokens are read at once; what the model was trained with unless you say so.
        set_: How the data are read: lines=true, source=english, size=5000, ...
    """
    from peasy.config import assign
    from peasy.errors import UsageError
    from peasy.workbench.evaluate import evaluate as verb

    if not data:
        raise UsageError("evaluate needs DATA.", hint=f"For example: peasy evaluate {model} stories")
    options: dict[str, Any] = {}
    for setting in set_ or ():
        options = assign(options, setting)
    found = verb(
        model, data[0] if len(data) == 1 else list(data), split=split, limit=limit, context=context, options=options,
        device=flags.device, offline=flags.offline, ask=asking(flags), progress=Meter("evaluating", flags),
    )  # fmt: skip
    return Answer(found, next=[f"peasy models {model}"])
