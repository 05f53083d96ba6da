"""`peasy help`: the help of a command or subcommand."""

import io

from peasy.cli.command import CommandOutput, DocumentResult, Flags


def help(*command: str, flags: Flags = Flags()) -> CommandOutput:
    """Print the help of a command or a subcommand; without one, the list of all commands.

    For example:

        peasy help
        peasy help generate
        peasy help runs diff

    Args:
        command: Command, and its subcommand if it has one.
    """
    from rich.console import Console

    from peasy.cli import usage
    from peasy.cli.app import build_cli
    from peasy.cli.command_table import COMMANDS, find_command
    from peasy.views.document import Document, Paragraph

    found = find_command(command, COMMANDS)
    if command and found is None:
        raise usage.unknown_command(command[0])
    if found is not None and found.path.split() != list(command):
        raise usage.unknown_subcommand(found, command[len(found.path.split())])
    app = build_cli(*command)
    if not (flags.json or flags.out):
        app.help_print(list(command))
    text = io.StringIO()
    app.help_print(list(command), console=Console(file=text, width=80, no_color=True))
    document = Document(" ".join(["peasy", *command]), (Paragraph(text.getvalue()),))
    result = DocumentResult(document, {"command": " ".join(command), "help": text.getvalue()})
    return CommandOutput(result, already_printed=not flags.out)
