"""Errors for people: what is wrong, where, and what to do next."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


class PeasyError(Exception):
    """Something a person can put right; `hint` says how."""

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
    """A named thing does not exist."""

    code, exit_code = "not-found", 3


class InvalidInput(PeasyError):
    """A file, an array or a checkpoint is not what it should be."""

    code, exit_code = "invalid-input", 4


class MissingPart(PeasyError):
    """An optional part of peasy is not installed."""

    code, exit_code = "missing-part", 5


class NoRoom(PeasyError):
    """Memory, disk or a port is not to be had."""

    code, exit_code = "no-room", 6


class NeedsNetwork(PeasyError):
    """Only the network could answer, and it is off or silent."""

    code, exit_code = "needs-network", 7


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The sentence that names the nearest known word, if one is near.

    >>> did_you_mean("jurney", ["journey", "pizza"])
    'Did you mean journey?'
    """
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"Did you mean {by_lower[near[0]]}?" if near else None


def named(given: str | T, known: Mapping[str, T], what: str) -> T:
    """The thing of that name, or an error that names the nearest; a thing that is not a name is itself.

    >>> named("plus", {"plus": 1, "minus": -1}, "sign")
    1
    """
    if not isinstance(given, str):
        return given
    if given not in known:
        hint = did_you_mean(given, known) or f"Known: {', '.join(known)}."
        raise InvalidInput(f'There is no {what} "{given}".', hint=hint)
    return known[given]
