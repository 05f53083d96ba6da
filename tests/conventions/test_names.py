"""The public names: one list, each at home somewhere, each documented with an example, and nothing else to be seen."""

import ast
import inspect
import re
import subprocess
import sys

import peasy


def test_every_name_has_a_home_and_every_home_a_name():
    assert set(peasy.__all__) == set(peasy._MODULE_OF_NAME) | {"__version__"}
    assert sorted(peasy.__all__) == dir(peasy)


def test_every_name_can_be_had_and_says_what_it_is():
    for name in peasy._MODULE_OF_NAME:
        assert inspect.getdoc(getattr(peasy, name)), name


def test_type_checkers_see_the_same_names(root):
    tree = ast.parse((root / "src/peasy/__init__.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(peasy._MODULE_OF_NAME)


def test_public_functions_show_an_example():
    functions = [name for name in peasy._MODULE_OF_NAME if inspect.isfunction(getattr(peasy, name))]
    assert functions
    assert not [name for name in functions if ">>>" not in (inspect.getdoc(getattr(peasy, name)) or "")]


def test_the_names_are_listed_for_readers(root):
    page = (root / "docs/python.md").read_text(encoding="utf-8")
    assert set(peasy._MODULE_OF_NAME) == set(re.findall(r"^## `(\w+)`$", page, re.MULTILINE))


def test_rooms_with_public_classes_need_no_second_import():
    code = "import peasy; print(peasy.nn.SelfAttention.__name__, peasy.formula.Step.__name__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["SelfAttention", "Step"]
