"""User-facing errors with exit codes and hints: what is wrong, where, and what to do next."""

import functools
import os
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

EXIT_WRONG, EXIT_NOT_COMPARED = 8, 9
"""Exit codes of a check that ran: something is wrong; nothing was found wrong, but not everything was compared."""


def verdict_exit_code(passed: bool | None) -> int:
    """Return the exit code of a verdict: right, wrong, or (None) not compared.

    >>> [verdict_exit_code(passed) for passed in (True, False, None)]
    [0, 8, 9]
    """
    return EXIT_NOT_COMPARED if passed is None else 0 if passed else EXIT_WRONG


class PeasyError(Exception):
    """Base class of errors that the user can fix; `hint` says how, `script` are lines of Python that do it.

    >>> PeasyError("There is no model x.", hint="List the models: peasy models").hint
    'List the models: peasy models'
    """

    code = "error"
    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None, script: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint, self.script = message, hint, script


class UsageError(PeasyError):
    """The command was not understood."""

    code, exit_code = "usage", 2


class UnknownKeyword(UsageError, TypeError):
    """A function was called with a keyword that it does not have; also a TypeError, as in Python itself."""


class NotFound(PeasyError):
    """A named file, model or example does not exist."""

    code, exit_code = "not-found", 3


class InvalidInput(PeasyError):
    """Invalid file, array, setting or checkpoint."""

    code, exit_code = "invalid-input", 4


class MissingExtra(PeasyError):
    """An optional dependency (an extra of peasy) is not installed."""

    code, exit_code = "missing-extra", 5

    def __str__(self) -> str:
        return " ".join(filter(None, (self.message, self.hint)))  # a traceback shows no hint


class ResourceUnavailable(PeasyError):
    """Memory, disk space or a port is not available."""

    code, exit_code = "resource-unavailable", 6


class NeedsNetwork(PeasyError):
    """The network is needed but is off or does not respond."""

    code, exit_code = "needs-network", 7


@functools.cache
def synonyms() -> dict[str, str]:
    """Return the names that other tools give to the parameters of peasy: name -> ours ("a or b" = either)."""
    table = tomllib.loads((resources.files("peasy") / "synonyms.toml").read_text(encoding="utf-8"))
    return {theirs: ours for ours, names in table.items() for theirs in names.split()}


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a "Did you mean" sentence with the known word of the same meaning (`synonyms`) or spelling, or None.

    >>> did_you_mean("jurney", ["journey", "pizza"])
    'Did you mean journey?'
    >>> did_you_mean("--max-new-tokens", ["--max-tokens", "--model"])
    'Did you mean --max-tokens?'
    """
    known = list(known)
    same_meaning = synonyms().get(_as_keyword(word), "").split(" or ")
    if meant := [name for synonym in same_meaning for name in known if _as_keyword(name) == synonym]:
        return f"Did you mean {' or '.join(meant)}?"
    by_lower = {name.lstrip("-").lower(): name for name in known}
    near = get_close_matches(word.lstrip("-").lower(), by_lower, n=1, cutoff=0.6)
    return f"Did you mean {by_lower[near[0]]}?" if near else None


def _as_keyword(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def lookup(name: str | T, known: Mapping[str, T], kind: str) -> T:
    """Look up a name in `known`, or raise with the closest match; a value that is not a string is returned as is.

    >>> lookup("plus", {"plus": 1, "minus": -1}, "sign")
    1
    """
    if not isinstance(name, str):
        return name
    if name not in known:
        hint = did_you_mean(name, known) or f"Known: {', '.join(known)}."
        raise InvalidInput(f'There is no {kind} "{name}".', hint=hint)
    return known[name]


def check_file_name(name: object) -> None:
    """Raise for a text that no system takes as the name of a file: it has a null character or half a character.

    >>> check_file_name("notes.md")
    >>> check_file_name("notes" + chr(0))
    Traceback (most recent call last):
    peasy.errors.InvalidInput: 'notes\\x00' cannot be the name of a file.
    """
    if not isinstance(name, str | Path):
        return
    try:
        is_usable = b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        is_usable = False
    if not is_usable:
        raise InvalidInput(f"{ascii(str(name))[:60]} cannot be the name of a file.")
