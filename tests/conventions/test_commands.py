"""A verb is a line in the table, a file, a help that opens with examples, and a test."""

import ast
import inspect
import re
from importlib import import_module

import pytest

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.command_table import COMMANDS

NAMES = [verb.name for verb in COMMANDS]


def function(verb):
    module, _, name = verb.home.partition(":")
    return getattr(import_module(module), name)


@pytest.fixture(params=COMMANDS, ids=NAMES)
def verb(request):
    return request.param


def test_verb_has_its_file_and_takes_the_flags(verb):
    signature = inspect.signature(function(verb), eval_str=True)
    assert signature.parameters["flags"].annotation is Flags
    assert signature.return_annotation is CommandOutput


def test_help_opens_with_examples(verb, capsys):
    from peasy.cli.app import run

    assert run([verb.name, "--help"]) == 0
    description, _, flags = capsys.readouterr().out.partition("╭")
    assert re.search(rf"^    (.*\| )?peasy {verb.name}\b", description, re.MULTILINE)
    assert "--json" in flags


def test_every_parameter_is_described(verb, capsys):
    from peasy.cli.app import build_cli

    arguments = build_cli(verb.name)[verb.name].assemble_argument_collection(parse_docstring=True)
    assert not [argument.name for argument in arguments if argument.show and not argument.parameter.help]


def test_verb_has_a_test(verb, root):
    assert (root / f"tests/cli/test_{verb.name}.py").exists()


def test_every_verb_file_stands_in_the_table(sources):
    """A file of the door with a function of its own name is a verb; `start` is `peasy` alone."""
    files = [source for source in sources if source.name.startswith("cli/")]
    verbs = {
        source.path.stem.rstrip("_")
        for source in files
        if source.path.stem in {node.name for node in source.tree.body if isinstance(node, ast.FunctionDef)}
    }
    assert verbs == {*NAMES, "start"}
