"""Names and first docstring lines use the words of the field: unique class names, no metaphors."""

import ast
import collections
import re

import pytest

DIALECT_MODULES = {
    "sight", "scene", "crew", "teller", "house", "desk", "door", "pulse", "workshop", "dialect", "draft", "meter",
    "glance", "waiting", "saving", "runner", "thrift", "road", "parting", "copy", "stance", "way", "chart",
    "patient", "subject", "looked", "looks", "looking", "passage", "why", "watch", "finding", "feed", "journal",
    "chance", "finite", "sharded", "stop", "arrival", "departure", "rule", "home", "running", "phrase",
    "generated", "border", "visible", "inert", "sizes", "work", "mark", "route", "element", "glyph", "sketch",
    "choosing", "consent", "screen", "verb", "commit", "parts", "part", "place", "even", "shift",
    "backward", "scenes",
}  # fmt: skip
"""File names of the first version; each was replaced by a name of the field (docs/decisions/0012)."""

METAPHORS = re.compile(
    r"\b(nobody|somebody|everybody|whoever|anybody|so many|is told|are told|who may|whom|teller|crew|patient|thrift\w*|"
    r"rooms?|floors?|doors?|house|stands? (still|behind|where|for itself)|lives here|other road)\b",
    re.IGNORECASE,
)


def class_names(tree: ast.AST) -> list[str]:
    """Every class of a file, nested ones too."""
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def first_lines(tree: ast.AST) -> list[tuple[int, str]]:
    """First docstring line of the module and of each class and function, with its line number."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    lines = [(getattr(node, "lineno", 1), (ast.get_docstring(node) or "").partition("\n")[0]) for node in nodes]
    return [(line, text) for line, text in lines if text]


def metaphors(tree: ast.AST) -> list[str]:
    return [f"{line}: {text}" for line, text in first_lines(tree) if METAPHORS.search(text)]


def test_no_class_name_is_defined_twice(sources):
    where = collections.defaultdict(list)
    for source in sources:
        for name in class_names(source.tree):
            where[name].append(source.name)
    assert not {name: files for name, files in where.items() if len(files) > 1}


def test_no_module_has_a_name_of_the_old_dialect(sources):
    assert not [source.name for source in sources if source.path.stem in DIALECT_MODULES]


def test_first_docstring_lines_are_plain(sources):
    assert not {source.name: found for source in sources if (found := metaphors(source.tree))}


@pytest.mark.parametrize("text", ["Who may look at whom.", "A number nobody asks for.", "The crew of a run."])
def test_a_metaphor_is_found(text):
    assert metaphors(ast.parse(f'"""{text}"""'))


def test_nested_classes_count():
    assert sorted(class_names(ast.parse("class A:\n    class B: pass\ndef f():\n    class A: pass"))) == ["A", "A", "B"]
