"""Every row of the coverage says what is so: the command is one, the test is there, the page is there."""

import ast
import shlex
from functools import cache
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from peasy.cli.app import build_cli
from peasy.cli.command_table import COMMANDS
from peasy.commands.experiment import EXPERIMENTS
from peasy.worked.example import example_names

COUNTS = {"000": 10, "001": 8, "002": 9, "003": 4, "004": 4}
NUMBERS = [f"{document}.{number}" for document, count in COUNTS.items() for number in range(1, count + 1)]


@pytest.fixture(scope="module")
def rows(generate):
    return generate.covered()


@cache
def door(verb: str):
    """The command line, built once for each verb."""
    return build_cli(verb)


@cache
def functions(file: Path) -> set[str]:
    """The names of all functions in a file; none where there is no such file."""
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.exists() else ast.Module([], [])
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@cache
def wrong_with(command: str) -> str | None:
    """What is wrong with a command line; None for one that could be run."""
    name, verb, *rest = shlex.split(command)
    if name != "peasy" or verb not in {each.name for each in COMMANDS}:
        return f"{command}: no verb"
    if verb == "experiment" and rest[0] not in {each.name for each in EXPERIMENTS}:
        return f"{command}: no experiment"
    if verb == "explain" and rest[0] not in example_names():
        return f"{command}: no example"
    try:
        door(verb).parse_args([verb, *rest], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return f"{command}: {error}"
    return None


def test_every_number_has_its_row(rows):
    assert list(rows) == NUMBERS


def test_every_command_can_be_typed(rows):
    assert not [wrong for row in rows.values() for command in row["commands"] if (wrong := wrong_with(command))]


def test_every_test_is_there(rows, root):
    tests = [test.partition("::") for row in rows.values() for test in row["tests"]]
    missing = [f"{file}::{name}" for file, _, name in tests if name not in functions(root / file)]
    assert not missing


def test_every_page_is_there(rows, root):
    pages = [page for row in rows.values() for page in row["pages"]]
    assert not [page for page in pages if not (root / "docs" / "tour" / page).is_file()]


def test_every_experiment_shows_what_it_says_it_shows(rows):
    """Two roads: the claims that an experiment names are the rows that name the experiment."""
    for each in EXPERIMENTS:
        named = [number for number, row in rows.items() if f"peasy experiment {each.name}" in row["commands"]]
        assert set(each.claims) <= set(named), each.name


def test_every_experiment_has_its_page(root):
    assert {page.stem for page in (root / "docs/tour/experiments").glob("*.md")} == {each.name for each in EXPERIMENTS}


@pytest.mark.parametrize(
    "command",
    ["peasy explian i-love-ai", "peasy explain i-love-aj", "peasy experiment itt", "peasy explain journey --qery x"],
)
def test_a_command_that_is_none_is_noticed(command):
    assert wrong_with(command)
