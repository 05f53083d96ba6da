"""Flags of the training recipe (--lr, --batch-size, --config, --set), and parsing of --set key=value."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from peasy.errors import UsageError

SetFlag = Annotated[list[str] | None, Parameter(name="--set", negative="")]
"""`--set key=value`, repeatable."""

_SHORTCUTS = {"lr": "optimizer.lr", "batch_size": "batch_size"}


@Parameter(name="*", group=Group("Recipe", sort_key=50))
@dataclass(frozen=True, kw_only=True)
class RecipeFlags:
    """Flags that change settings of the recipe: the preset < --config < --lr and --batch-size < --set."""

    lr: float | None = None
    "Learning rate: the setting optimizer.lr."
    batch_size: int | None = None
    "Number of sequences per step: the setting batch_size."
    config: Path | None = None
    "File of settings in TOML or JSON, with the same names as --set."
    set_: SetFlag = None
    "Override any setting: optimizer.lr=0.01, model.dropout=0.1, seq_len=128, compile=true, ... Can be repeated."

    def as_kwargs(self) -> dict[str, Any]:
        """Return the flags as keyword arguments of `train` and `plan`."""
        for name, path in _SHORTCUTS.items():
            given = [setting for setting in self.set_ or () if setting.partition("=")[0].strip() == path]
            if given and getattr(self, name) is not None:
                message = f"--{name.replace('_', '-')} and --set {path}= are the same setting."
                raise UsageError(message, hint="Leave out one of them.")
        settings = parse_settings(self.set_)
        return {"lr": self.lr, "batch_size": self.batch_size, "config": self.config, "settings": settings}

    def as_args(self) -> str:
        """Return the flags as typed on a command line, for suggested commands."""
        args = [f" --{name.replace('_', '-')} {getattr(self, name)}" for name in _SHORTCUTS if getattr(self, name)]
        args += [f" --config {shlex.quote(str(self.config))}"] if self.config else []
        return "".join([*args, *(f" --set {shlex.quote(setting)}" for setting in self.set_ or ())])


def parse_settings(items: Sequence[str] | None, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Apply `key=value` settings to nested tables.

    >>> parse_settings(["model.dropout=0.1", "parallel=fsdp"])
    {'model': {'dropout': 0.1}, 'parallel': 'fsdp'}
    """
    from peasy.config import apply_setting

    result = dict(settings or {})
    for item in items or ():
        result = apply_setting(result, item)
    return result
