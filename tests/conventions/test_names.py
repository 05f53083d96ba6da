"""Public names: one list, each with its module, documented and with an example; no other name is visible."""

import doctest
import inspect
import re
import subprocess
import sys

import pytest

import peasy

MODULE_OF_NAME = {name: module for name, module in peasy._public_names().items() if module != "peasy"}


def test_every_public_name_has_a_module():
    assert set(peasy.__all__) == set(MODULE_OF_NAME) | {"__version__"}
    assert sorted(peasy.__all__) == dir(peasy)


def test_every_public_name_is_documented():
    for name in MODULE_OF_NAME:
        assert inspect.getdoc(getattr(peasy, name)), name


@pytest.mark.slow
def test_type_checkers_know_the_same_names(tmp_path):
    """A misspelt name is an error, and a public function has its own type; both come from one table."""
    code = "import peasy\nfrom peasy import look\nreveal_type(peasy.edit.cut)\nreveal_type(look)\npeasy.lok\n"
    (tmp_path / "user.py").write_text(code, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--ignore-missing-imports",
        "user.py",
    ]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert re.search(r'user.py:3: note: Revealed type is "def \(', out), out
    assert re.search(r'user.py:4: note: Revealed type is "(Overload\()?def \(', out), out
    assert re.search(r'user.py:5: error: Module has no attribute "lok"', out), out
    assert "Found 1 error" in out


def test_public_names_show_an_example():
    """Doctests of the modules run them, and docs/python.md shows them."""
    shown = [name for name in MODULE_OF_NAME if not inspect.ismodule(getattr(peasy, name))]
    assert len(shown) > 30
    assert not [name for name in shown if ">>>" not in (inspect.getdoc(getattr(peasy, name)) or "")]


def test_every_result_shows_an_example(generate):
    """A result has an example of its own, or is the first result of a function whose docstring shows one that runs."""
    texts, without = generate._results(), []
    for name in MODULE_OF_NAME:
        classes = generate._result_classes(getattr(peasy, name))
        shown = classes[:1] if "Traceback" not in (inspect.getdoc(getattr(peasy, name)) or "") else []
        without += [cls.__name__ for cls in classes if cls not in shown and "example" not in texts[cls.__name__]]
    assert without == []


def test_examples_of_results_run(generate, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    output: list[str] = []
    examples = generate._results()["examples"] | {
        name: texts["example"] for name, texts in generate._results().items() if "example" in texts
    }
    assert len(examples) > 12
    for name, text in examples.items():
        names = {name: getattr(peasy, name) for name in MODULE_OF_NAME}
        runner.run(parser.get_doctest(text, names, name, None, 0), out=output.append)
    assert runner.failures == 0, "".join(output)


def test_public_names_are_listed_in_the_docs(root):
    page = (root / "docs/python.md").read_text(encoding="utf-8")
    assert set(MODULE_OF_NAME) == set(re.findall(r"^## `(\w+)`$", page, re.MULTILINE))


def test_nn_and_formula_need_no_second_import():
    code = "import peasy; print(peasy.nn.SelfAttention.__name__, peasy.formula.FormulaStep.__name__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["SelfAttention", "FormulaStep"]
