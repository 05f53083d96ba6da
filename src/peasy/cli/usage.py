"""Help and usage errors: `peasy help`; unknown commands, subcommands and flags, with suggestions."""

import io
from collections.abc import Sequence

from cyclopts import CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from peasy.cli.command import STDIN, CommandOutput, DocumentResult, Flags
from peasy.cli.command_table import COMMANDS, Command, find_command
from peasy.errors import UsageError, did_you_mean
from peasy.views.document import Document, Paragraph


def unknown_command(name: str) -> UsageError:
    """Return the error for an unknown command; a sentence was probably meant for `explain`."""
    name = "-" if name == STDIN else name
    if len(name.split()) > 1:
        return UsageError(f'"{name}" is not a command.', hint=f'To explain a sentence: peasy explain "{name}"')
    near = did_you_mean(name, [command.name for command in COMMANDS])
    hint = "\n".join(filter(None, [near, "List of commands: peasy --help"]))
    return UsageError(f'There is no command "{name}".', hint=hint)


def _unknown_subcommand(command: Command, name: str) -> UsageError:
    """Return the error for an unknown subcommand, with the known ones."""
    names = [subcommand.name for subcommand in command.subcommands]
    if not names:
        return UsageError(f"{command.path} has no subcommands.", hint=f"See: peasy {command.path} --help")
    near = did_you_mean(name, names) or f"Known: {', '.join(names)}."
    return UsageError(f'{command.path} has no subcommand "{name}".', hint=f"{near}\nSee: peasy {command.path} --help")


def usage_error(error: CycloptsError, args: Sequence[str]) -> UsageError:
    """Convert a cyclopts error to a UsageError that points to the help."""
    command = find_command(args, COMMANDS)
    path = command.path if command else ""
    if command is not None and command.subcommands and isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return _unknown_subcommand(command, _as_typed(error.unused_tokens[0]))
    help_command = " ".join(filter(None, ["peasy", path, "--help"]))
    message, hint = _describe(error, path or "peasy")
    return UsageError(message, hint="\n".join(filter(None, [hint, f"See: {help_command}"])))


def _describe(error: CycloptsError, command: str) -> tuple[str, str | None]:
    if isinstance(error, UnknownOptionError):
        flag = (error.token.keyword or error.token.value).partition("=")[0]
        names = [name for argument in error.argument_collection for name in argument.names if name.startswith("-")]
        names = [name for name in names if name == "-n" or len(name) > 3]  # one name each: no short forms, no --n
        revision = "The revision follows a hub id: owner/model@v1." if flag == "--revision" else None
        return f"{command} has no flag {flag}.", revision or did_you_mean(flag, names)
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.keyword or error.argument.name
        by_keyword = any(token.keyword for token in error.argument.tokens) or error.keyword
        positional = error.argument.field_info.is_positional and not by_keyword
        return f"{command} needs {name.lstrip('-').upper() if positional else 'a value for ' + name}.", None
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        word = _as_typed(error.unused_tokens[0])
        return f'{command}: unexpected argument "{word}".', "Put a text of several words in quotes."
    error.verbose = False
    message, _, near = str(error).partition(" Did you mean ")
    return message, f"Did you mean {near}" if near else None


def _as_typed(word: str) -> str:
    return "-" if word == STDIN else word


def help(*command: str, flags: Flags = Flags()) -> CommandOutput:
    """Print the help of a command or a subcommand; without one, the list of all commands.

    Args:
        command: Command, and its subcommand if it has one.
    """
    from rich.console import Console

    from peasy.cli.app import build_cli  # which imports this module

    found = find_command(command, COMMANDS)
    if command and found is None:
        raise unknown_command(command[0])
    if found is not None and found.path.split() != list(command):
        raise _unknown_subcommand(found, command[len(found.path.split())])
    app = build_cli(*command)
    if not (flags.json or flags.out):
        app.help_print(list(command))
    text = io.StringIO()
    app.help_print(list(command), console=Console(file=text, width=80, no_color=True))
    document = Document(" ".join(["peasy", *command]), (Paragraph(text.getvalue()),))
    result = DocumentResult(document, {"command": " ".join(command), "help": text.getvalue()})
    return CommandOutput(result, already_printed=not flags.out)
