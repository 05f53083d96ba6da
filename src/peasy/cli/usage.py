"""A command that was not understood, said in the words of the house."""

from collections.abc import Sequence

from cyclopts import CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from peasy.cli.door import STDIN
from peasy.cli.verb import VERBS
from peasy.errors import UsageError, did_you_mean


def unknown_verb(word: str) -> UsageError:
    """No such verb; a sentence was most likely meant for `explain`."""
    word = "-" if word == STDIN else word
    if len(word.split()) > 1:
        return UsageError(f'"{word}" is not a verb.', hint=f'For a sentence: peasy explain "{word}"')
    near = did_you_mean(word, [verb.name for verb in VERBS])
    return UsageError(f'There is no verb "{word}".', hint="\n".join(filter(None, [near, "See all: peasy --help"])))


def misused(error: CycloptsError, words: Sequence[str]) -> UsageError:
    """What cyclopts did not understand, and where to read how it goes."""
    verb = words[0] if words and not words[0].startswith("-") else ""
    asked = " ".join(filter(None, ["peasy", verb, "--help"]))
    message, hint = _say(error, verb or "peasy")
    return UsageError(message, hint="\n".join(filter(None, [hint, f"See: {asked}"])))


def _say(error: CycloptsError, verb: str) -> tuple[str, str | None]:
    if isinstance(error, UnknownOptionError):
        flag = (error.token.keyword or error.token.value).partition("=")[0]
        names = [name for argument in error.argument_collection for name in argument.names if name.startswith("-")]
        return f"{verb} has no flag {flag}.", did_you_mean(flag, names)
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.keyword or error.argument.name
        given = any(token.keyword for token in error.argument.tokens) or error.keyword
        positional = error.argument.field_info.is_positional and not given
        return f"{verb} needs {name.lstrip('-').upper() if positional else 'a value for ' + name}.", None
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f'{verb} cannot place "{error.unused_tokens[0]}".', "A text of several words goes in quotes."
    error.verbose = False
    message, _, near = str(error).partition(" Did you mean ")
    return message, f"Did you mean {near}" if near else None
