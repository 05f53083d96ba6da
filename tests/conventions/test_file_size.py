"""Small files, small functions, rooms with names, and nobody prints but the terminal door."""

import ast

import pytest

FILE, FUNCTION = 400, 60
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "shared"}


def long_functions(tree: ast.AST) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= FUNCTION]


def prints(tree: ast.AST) -> bool:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(called, ast.Name) and called.id in ("print", "input") for called in calls)


def test_files_are_short(sources):
    assert not {s.name: lines for s in sources if (lines := s.text.count("\n")) > FILE}


def test_functions_are_short(sources):
    assert not {s.name: found for s in sources if (found := long_functions(s.tree))}


def test_no_room_is_nameless(sources):
    assert not [s.name for s in sources if NAMELESS & {s.path.stem, *s.path.relative_to(s.path.parents[2]).parts}]


def test_only_the_terminal_door_prints(sources):
    assert not [s.name for s in sources if prints(s.tree) and not s.name.startswith("cli/")]


def test_no_debts_are_left_in_the_source(sources):
    assert not [s.name for s in sources for word in ("TODO", "FIXME", "XXX", "NotImplementedError") if word in s.text]


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (long_functions, "def f():\n" + "    x = 1\n" * FUNCTION),
        (prints, "def f():\n    print(1)"),
    ],
)
def test_the_rules_can_be_broken(found, code):
    assert found(ast.parse(code))
