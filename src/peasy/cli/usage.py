"""Usage errors: unknown commands and flags, with suggestions."""

from collections.abc import Sequence

from cyclopts import CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from peasy.cli.command import STDIN
from peasy.cli.command_table import COMMANDS
from peasy.errors import UsageError, did_you_mean


def unknown_command(name: str) -> UsageError:
    """Return the error for an unknown command; a sentence was probably meant for `explain`."""
    name = "-" if name == STDIN else name
    if len(name.split()) > 1:
        return UsageError(f'"{name}" is not a command.', hint=f'To explain a sentence: peasy explain "{name}"')
    near = did_you_mean(name, [command.name for command in COMMANDS])
    return UsageError(
        f'There is no command "{name}".', hint="\n".join(filter(None, [near, "List of commands: peasy --help"]))
    )


def usage_error(error: CycloptsError, args: Sequence[str]) -> UsageError:
    """Convert a cyclopts error to a UsageError that points to the help."""
    command = args[0] if args and not args[0].startswith("-") else ""
    help_command = " ".join(filter(None, ["peasy", command, "--help"]))
    message, hint = _describe(error, command or "peasy")
    return UsageError(message, hint="\n".join(filter(None, [hint, f"See: {help_command}"])))


def _describe(error: CycloptsError, command: str) -> tuple[str, str | None]:
    if isinstance(error, UnknownOptionError):
        flag = (error.token.keyword or error.token.value).partition("=")[0]
        names = [name for argument in error.argument_collection for name in argument.names if name.startswith("-")]
        return f"{command} has no flag {flag}.", did_you_mean(flag, names)
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.keyword or error.argument.name
        by_keyword = any(token.keyword for token in error.argument.tokens) or error.keyword
        positional = error.argument.field_info.is_positional and not by_keyword
        return f"{command} needs {name.lstrip('-').upper() if positional else 'a value for ' + name}.", None
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f'{command}: unexpected argument "{error.unused_tokens[0]}".', "Put a text of several words in quotes."
    error.verbose = False
    message, _, near = str(error).partition(" Did you mean ")
    return message, f"Did you mean {near}" if near else None
