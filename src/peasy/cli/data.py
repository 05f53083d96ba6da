"""`peasy data`: lists and describes datasets."""

from peasy.cli.command import CommandOutput, Flags, Switch
from peasy.cli.recipe_flags import SetFlag, parse_settings


def data(
    *source: str,
    set_: SetFlag = None,
    strict: Switch = False,
    flags: Flags = Flags(),
) -> CommandOutput:
    """List the built-in datasets, or describe one: size, licence, hash, examples, invalid rows.

    For example:

        peasy data
        peasy data stories
        peasy data locales:en-de --json
        peasy data my-texts/ --set valid=held-out.txt
        peasy data train.en train.fr
        peasy data pairs.tsv --strict

    Args:
        source: Built-in dataset, file, folder, or several files.
        set_: Option of the dataset: length=20, num_train=500, lines=true, ...
        strict: Fail on the first invalid row, instead of counting them.
    """
    from peasy.commands.data import data as command

    if not source:
        return CommandOutput(command(), suggestions=["peasy data stories"])
    options = parse_settings(set_, {"strict": True} if strict else {})
    result = command(source[0] if len(source) == 1 else list(source), seed=flags.seed or 0, **options)
    sizes = ", ".join(f"{split} {size.documents:,} documents" for split, size in result.card.sizes.items())
    return CommandOutput(result, summary=f"{result.card.name}: {sizes}")
