"""`peasy data`: lists and describes datasets."""

from typing import Annotated, Any

from cyclopts import Parameter

from peasy.cli.door import Answer, Flags


def data(
    *what: str,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    strict: Annotated[bool, Parameter(negative="")] = False,
    flags: Flags = Flags(),
) -> Answer:
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
    from peasy.config import assign
    from peasy.workbench.data import data as command

    if not what:
        return Answer(command(), next=["peasy data stories"])
    options: dict[str, Any] = {"strict": True} if strict else {}
    for setting in set_ or []:
        options = assign(options, setting)
    result = command(what[0] if len(what) == 1 else list(what), seed=flags.seed or 0, **options)
    sizes = ", ".join(f"{split} {size.documents:,} documents" for split, size in result.card.sizes.items())
    return Answer(result, brief=f"{result.card.name}: {sizes}")
