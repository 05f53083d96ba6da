"""A command is a row of the command table, a function, a help text that opens with examples, and a test.

A subcommand is a row in its command's row, with its own function, flags and help, in the file of its command.
"""

import ast
import inspect
import re
from importlib import import_module

import pytest

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.command_table import COMMANDS, all_commands

ALL_COMMANDS = list(all_commands(COMMANDS))


def function(command):
    module, _, name = command.entry_point.partition(":")
    return getattr(import_module(module), name)


@pytest.fixture(params=ALL_COMMANDS, ids=[command.path for command in ALL_COMMANDS])
def command(request):
    return request.param


def test_command_has_a_function_and_takes_the_global_flags(command):
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


def test_every_command_function_is_in_the_table(sources):
    """A public function of the CLI that returns a CommandOutput is a command; `runs_show` is a subcommand of `runs`."""
    functions = {
        f"peasy.cli.{source.path.stem}:{node.name}"
        for source in sources
        if source.name.startswith("cli/")
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if isinstance(node.returns, ast.Name) and node.returns.id == "CommandOutput"
    }
    assert functions == {command.entry_point for command in ALL_COMMANDS}
