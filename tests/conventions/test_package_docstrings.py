"""Every package docstring states what the package is, what it may import, who imports it, its input and its output."""

import ast
import re

import pytest

PACKAGE_DOCSTRING = re.compile(
    r"[A-Z][^\n]+\.\n"
    r"\n"
    r"May import: [^\n]+\. Imported by: [^\n]+\.\n"
    r"In: [^\n]+\. Out: [^\n]+\.(\n|\Z)"
)
"""First line: a plain noun phrase."""


def test_every_package_has_a_complete_docstring(sources):
    packages = [source for source in sources if source.path.name == "__init__.py" and source.name != "__init__.py"]
    assert len(packages) >= 9
    assert not [p.name for p in packages if not PACKAGE_DOCSTRING.match(ast.get_docstring(p.tree) or "")]


def test_every_file_has_a_docstring(sources):
    assert not [source.name for source in sources if not ast.get_docstring(source.tree)]


@pytest.mark.parametrize(
    "docstring", ["", "Some words.", "Package: things.\n\nIn: a. Out: b.", "package: x.\n\nMay import: a."]
)
def test_an_incomplete_docstring_is_noticed(docstring):
    assert not PACKAGE_DOCSTRING.match(docstring)
