"""A command is a row of the command table, a file, a help text that opens with examples, and a test.

A subcommand is a row in its command's row, with its own function, flags and help, in the file of its command.
"""

import ast
import inspect
import re
from importlib import import_module

import pytest

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.command_table import COMMANDS, all_commands

NAMES = [command.name for command in COMMANDS]
ALL_COMMANDS = list(all_commands(COMMANDS))


def function(command):
    module, _, name = command.entry_point.partition(":")
    return getattr(import_module(module), name)


@pytest.fixture(params=ALL_COMMANDS, ids=[command.path for command in ALL_COMMANDS])
def command(request):
    return request.param


def test_command_has_a_file_and_takes_the_global_flags(command):
    signature = inspect.signature(function(command), eval_str=True)
    assert signature.parameters["flags"].annotation is Flags
    assert signature.return_annotation is CommandOutput


def test_help_opens_with_examples(command, capsys):
    from peasy.cli.app import run

    assert run([*command.path.split(), "--help"]) == 0
    description, _, flags = capsys.readouterr().out.partition("╭")
    assert re.search(rf"^    (.*\| )?peasy {command.path}\b", description, re.MULTILINE)
    assert "--json" in flags


def test_every_parameter_is_described(command, capsys):
    from peasy.cli.app import build_cli

    app = build_cli(*command.path.split())
    for name in command.path.split():
        app = app[name]
    arguments = app.assemble_argument_collection(parse_docstring=True)
    assert not [argument.name for argument in arguments if argument.show and not argument.parameter.help]


def test_command_has_a_test(command, root):
    file = root / f"tests/cli/test_{command.parent or command.name}.py"
    assert file.exists()
    assert not command.parent or f'"{command.name}"' in file.read_text(encoding="utf-8")


def test_every_command_file_is_in_the_table(sources):
    """A file of the CLI with a function of its own name is a command; `derive` makes flags for them."""
    files = [source for source in sources if source.name.startswith("cli/")]
    commands = {
        source.path.stem.rstrip("_")
        for source in files
        if source.path.stem in {node.name for node in source.tree.body if isinstance(node, ast.FunctionDef)}
    }
    assert commands == {*NAMES, "derive"}


def test_every_subcommand_function_is_in_the_table(sources):
    """A function named after its command, such as `runs_show` in runs.py, is a subcommand."""
    functions = {
        f"{source.path.stem} {node.name.removeprefix(source.path.stem + '_')}"
        for source in sources
        if source.name.startswith("cli/") and source.path.stem in NAMES
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith(f"{source.path.stem}_")
    }
    assert functions == {command.path for command in ALL_COMMANDS if command.parent}
