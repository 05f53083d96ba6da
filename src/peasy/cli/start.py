"""`peasy` without a command: a list of commands to try first."""

from peasy.cli.command import CommandOutput, DocumentResult, Flags
from peasy.views.document import Document, Paragraph, Table

_SUGGESTIONS = (
    ("peasy demo", "a worked example of attention"),
    ("peasy explain i-love-ai", "attention of three words in six steps, with every number"),
    ('peasy explain "any sentence"', "the same for your own sentence"),
    ("peasy check my-notes.md", "find mistakes in tables calculated by hand"),
    ("peasy exercise --seed 5", "a worksheet and its answer key"),
    ('peasy generate stories "The pizza"', "generate text with a small built-in model"),
    ('peasy look stories "The pizza ..."', "inspect its attention heads"),
    ("peasy studio", "web interface with all of this"),
    ("peasy doctor", "check the installation"),
    ("peasy --help", "list all commands"),
)


def start(*, flags: Flags = Flags()) -> CommandOutput:
    """Return the list of commands to try first."""
    title = "peasy: attention you can follow, number by number"
    parts = (
        Table(("command", "result"), _SUGGESTIONS),
        Paragraph("No data leaves this machine unless you ask for it.", "note"),
    )
    return CommandOutput(
        DocumentResult(
            Document(title, parts), {"try": [{"command": line, "description": result} for line, result in _SUGGESTIONS]}
        )
    )
