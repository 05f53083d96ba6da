"""Public names: one list, each with its module, documented and with an example; no other name is visible."""

import ast
import inspect
import re
import subprocess
import sys

import peasy


def test_every_public_name_has_a_module():
    assert set(peasy.__all__) == set(peasy._MODULE_OF_NAME) | {"__version__"}
    assert sorted(peasy.__all__) == dir(peasy)


def test_every_public_name_is_documented():
    for name in peasy._MODULE_OF_NAME:
        assert inspect.getdoc(getattr(peasy, name)), name


def test_type_checkers_see_the_same_names(root):
    tree = ast.parse((root / "src/peasy/__init__.py").read_text(encoding="utf-8"))
    type_checking_block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name for node in type_checking_block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == set(peasy._MODULE_OF_NAME)


def test_public_functions_show_an_example():
    functions = [name for name in peasy._MODULE_OF_NAME if inspect.isfunction(getattr(peasy, name))]
    assert functions
    assert not [name for name in functions if ">>>" not in (inspect.getdoc(getattr(peasy, name)) or "")]


def test_public_names_are_listed_in_the_docs(root):
    page = (root / "docs/python.md").read_text(encoding="utf-8")
    assert set(peasy._MODULE_OF_NAME) == set(re.findall(r"^## `(\w+)`$", page, re.MULTILINE))


def test_nn_and_formula_need_no_second_import():
    code = "import peasy; print(peasy.nn.SelfAttention.__name__, peasy.formula.FormulaStep.__name__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["SelfAttention", "FormulaStep"]
