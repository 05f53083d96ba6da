"""`peasy data`."""

from typing import Annotated, Any

from cyclopts import Parameter

from peasy.cli.door import Answer, Flags


def data(
    *what: str,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    strict: Annotated[bool, Parameter(negative="")] = False,
    flags: Flags = Flags(),
) -> Answer:
    """List the built-in corpora, or show one: size, licence, hash, examples, bad lines.

    For example:

        peasy data
        peasy data stories
        peasy data locales:en-de --json
        peasy data my-texts/ --set valid=held-out.txt
        peasy data train.en train.fr
        peasy data pairs.tsv --strict

    Args:
        what: A built-in name, a file, a folder, or several files.
        set_: An option of the corpus: length=20, fillers=0, lines=true, source=en, ...
        strict: Refuse the first row that cannot be used, instead of counting it.
    """
    from peasy.config import assign
    from peasy.workbench.data import data as verb

    if not what:
        return Answer(verb(), next=["peasy data stories"])
    options: dict[str, Any] = {"strict": True} if strict else {}
    for setting in set_ or []:
        options = assign(options, setting)
    result = verb(what[0] if len(what) == 1 else list(what), seed=flags.seed or 0, **options)
    sizes = ", ".join(f"{split} {size.documents:,} documents" for split, size in result.card.sizes.items())
    return Answer(result, brief=f"{result.card.name}: {sizes}")
