"""Settings of the training recipe on the command line: --set key=value, and the flags that are short for some."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated

from cyclopts import Parameter

from peasy.commands.result import JsonDict
from peasy.errors import UsageError

SetFlag = Annotated[list[str] | None, Parameter(name="--set", negative="")]
"""`--set key=value`, repeatable."""

_SHORTCUTS = {"lr": "optimizer.lr", "batch_size": "batch_size"}


def join_data(data: list[str] | None) -> str | list[str] | None:
    """Return the value of --data: one source, or several files."""
    return data[0] if data and len(data) == 1 else data


def recipe_settings(arguments: Mapping[str, object], items: Sequence[str] | None) -> JsonDict:
    """Return the settings of --set; raise if a flag that was given is short for one of them."""
    for name, path in _SHORTCUTS.items():
        if arguments.get(name) is not None and any(item.partition("=")[0].strip() == path for item in items or ()):
            message = f"--{name.replace('_', '-')} and --set {path}= are the same setting."
            raise UsageError(message, hint="Leave out one of them.")
    return parse_settings(items)


def train_command(kind: str, data: Sequence[str], arguments: Mapping[str, object], items: Sequence[str] | None) -> str:
    """Return the command line that trains what was planned, for a suggestion."""
    words = [word for source in data for word in ("--data", source)]
    for name in ("preset", "minutes", "steps", "lr", "batch_size", "config"):
        if (value := arguments.get(name)) is not None:
            words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    words += [word for item in items or () for word in ("--set", item)]
    return shlex.join(["peasy", "train", kind, *words])


def parse_settings(items: Sequence[str] | None, settings: JsonDict | None = None) -> JsonDict:
    """Apply `key=value` settings to nested tables.

    >>> parse_settings(["model.dropout=0.1", "parallel=fsdp"])
    {'model': {'dropout': 0.1}, 'parallel': 'fsdp'}
    """
    from peasy.config import apply_setting

    result = dict(settings or {})
    for item in items or ():
        result = apply_setting(result, item)
    return result
