"""docs/coverage.toml is correct: every command parses, every test and every tour page exists."""

import ast
import shlex
from functools import cache
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from peasy.cli.app import build_cli
from peasy.cli.command_table import COMMANDS
from peasy.experiments.result import EXPERIMENTS
from peasy.worked.example import example_names

TOPICS_PER_DOCUMENT = {
    "context-summary": 12,
    "self-attention": 10,
    "transformers": 10,
    "notes": 4,
    "simple-attention": 4,
}
TOPIC_IDS = [
    f"{document}.{number}" for document, count in TOPICS_PER_DOCUMENT.items() for number in range(1, count + 1)
]


@pytest.fixture(scope="module")
def rows(generate):
    return generate.coverage_rows()


@cache
def cached_cli(command: str):
    """Return the command line app, built once per command."""
    return build_cli(command)


@cache
def functions(file: Path) -> set[str]:
    """Return the names of all functions in a file; the empty set if there is no such file."""
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.exists() else ast.Module([], [])
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@cache
def command_error(line: str) -> str | None:
    """Return what is wrong with a command line, or None if it parses."""
    program, command, *arguments = shlex.split(line)
    if program != "peasy" or command not in {known.name for known in COMMANDS}:
        return f"{line}: no such command"
    if command == "experiment" and arguments[0] not in EXPERIMENTS:
        return f"{line}: no such experiment"
    if command == "explain" and arguments[0] not in example_names():
        return f"{line}: no such example"
    try:
        cached_cli(command).parse_args([command, *arguments], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return f"{line}: {error}"
    return None


def test_every_topic_has_a_row(rows):
    assert list(rows) == TOPIC_IDS


def test_every_command_parses(rows):
    assert not [error for row in rows.values() for line in row["commands"] if (error := command_error(line))]


def test_every_test_exists(rows, root):
    tests = [test.partition("::") for row in rows.values() for test in row["tests"]]
    missing = [f"{file}::{name}" for file, _, name in tests if name not in functions(root / file)]
    assert not missing


def test_every_page_exists(rows, root):
    pages = [page for row in rows.values() for page in row["pages"]]
    assert not [page for page in pages if not (root / "docs" / "tour" / page).is_file()]


def test_claims_of_experiments_are_rows_that_name_them(rows):
    """Checked in both places: the topics that an experiment claims are rows that name the experiment."""
    for experiment in EXPERIMENTS.values():
        line = f"peasy experiment {experiment.name}"
        assert set(experiment.claims) <= {topic for topic, row in rows.items() if line in row["commands"]}, line


def test_every_experiment_has_a_page(root):
    assert {page.stem for page in (root / "docs/tour/experiments").glob("*.md")} == set(EXPERIMENTS)


@pytest.mark.parametrize(
    "line",
    ["peasy explian i-love-ai", "peasy explain i-love-aj", "peasy experiment itt", "peasy explain journey --qery x"],
)
def test_an_invalid_command_line_is_noticed(line):
    assert command_error(line)
