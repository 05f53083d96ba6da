"""Short functions, descriptive module names, and only the CLI prints."""

import ast

import pytest

MAX_FUNCTION_LINES = 60
"""Without signature and docstring: they explain every parameter of a command."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "shared"}


def long_functions(tree: ast.AST) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [node.name for node in functions if (node.end_lineno or 0) - first_line(node) >= MAX_FUNCTION_LINES]


def first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Line of the first statement after the docstring, or of the last statement if there is none."""
    has_docstring = ast.get_docstring(function) is not None and len(function.body) > 1
    return function.body[1 if has_docstring else 0].lineno


def prints(tree: ast.AST) -> bool:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(called, ast.Name) and called.id in ("print", "input") for called in calls)


def test_functions_are_short(sources):
    assert not {s.name: names for s in sources if (names := long_functions(s.tree))}


def test_no_module_has_a_vague_name(sources):
    assert not [s.name for s in sources if VAGUE_NAMES & {s.path.stem, *s.path.relative_to(s.path.parents[2]).parts}]


def test_only_the_cli_prints(sources):
    assert not [s.name for s in sources if prints(s.tree) and not s.name.startswith("cli/")]


def test_no_todo_is_left_in_the_source(sources):
    assert not [s.name for s in sources for word in ("TODO", "FIXME", "XXX", "NotImplementedError") if word in s.text]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (long_functions, "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES + 1)),
        (prints, "def f():\n    print(1)"),
    ],
)
def test_the_rules_can_be_broken(rule, code):
    assert rule(ast.parse(code))
