"""No test is skipped silently: every test that can skip is listed in tests/skips.md with its reason."""

import ast
import re

SKIPPING = {"skip", "skipif", "importorskip", "xfail"}


def count_skips(tree: ast.AST) -> int:
    """Count the places where a test file can skip."""
    return sum(isinstance(node, ast.Attribute) and node.attr in SKIPPING for node in ast.walk(tree))


def listed_skips(text: str) -> dict[str, int]:
    """Return the files of tests/skips.md with the number of skips of each."""
    return {m[1]: int(m[2]) for m in re.finditer(r"^\| `([^`]+)` \| (\d+) \| [^|]{10,} \|$", text, re.MULTILINE)}


def test_the_list_is_exact(root):
    tests = root / "tests"
    found = {
        path.relative_to(tests).as_posix(): count
        for path in sorted(tests.rglob("*.py"))
        if (count := count_skips(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == listed_skips((tests / "skips.md").read_text(encoding="utf-8"))


def test_a_skip_is_counted():
    assert count_skips(ast.parse("@pytest.mark.skipif(True, reason='x')\ndef test(): pytest.skip('y')")) == 2
