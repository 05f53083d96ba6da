"""`peasy data`: lists and describes datasets."""

from typing import Annotated, Any

from cyclopts import Parameter

from peasy.cli.command import CommandOutput, Flags


def data(
    *what: str,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    strict: Annotated[bool, Parameter(negative="")] = False,
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
        what: Built-in dataset, file, folder, or several files.
        set_: Option of the dataset: length=20, fillers=0, lines=true, source=en, ...
        strict: Fail on the first invalid row, instead of counting them.
    """
    from peasy.commands.data import data as command
    from peasy.config import apply_setting

    if not what:
        return CommandOutput(command(), suggestions=["peasy data stories"])
    options: dict[str, Any] = {"strict": True} if strict else {}
    for setting in set_ or []:
        options = apply_setting(options, setting)
    result = command(what[0] if len(what) == 1 else list(what), seed=flags.seed or 0, **options)
    sizes = ", ".join(f"{split} {size.documents:,} documents" for split, size in result.card.sizes.items())
    return CommandOutput(result, summary=f"{result.card.name}: {sizes}")
