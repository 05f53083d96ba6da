"""User-facing errors with exit codes and hints: what is wrong, where, and what to do next."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


class PeasyError(Exception):
    """Base class of errors that the user can fix; `hint` says how."""

    code = "error"
    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PeasyError):
    """The command was not understood."""

    code, exit_code = "usage", 2


class NotFound(PeasyError):
    """A named file, model or example does not exist."""

    code, exit_code = "not-found", 3


class InvalidInput(PeasyError):
    """Invalid file, array, setting or checkpoint."""

    code, exit_code = "invalid-input", 4


class MissingExtra(PeasyError):
    """An optional dependency (an extra of peasy) is not installed."""

    code, exit_code = "missing-part", 5


class ResourceUnavailable(PeasyError):
    """Memory, disk space or a port is not available."""

    code, exit_code = "no-room", 6


class NeedsNetwork(PeasyError):
    """The network is needed but is off or does not respond."""

    code, exit_code = "needs-network", 7


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a "Did you mean" sentence with the closest known word, or None.

    >>> did_you_mean("jurney", ["journey", "pizza"])
    'Did you mean journey?'
    """
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"Did you mean {by_lower[near[0]]}?" if near else None


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
