"""No test is skipped in silence: whatever can be skipped stands in tests/skips.md with its reason."""

import ast
import re

SKIPPING = {"skip", "skipif", "importorskip", "xfail"}


def skips(tree: ast.AST) -> int:
    """How often a test file can skip."""
    return sum(isinstance(node, ast.Attribute) and node.attr in SKIPPING for node in ast.walk(tree))


def listed(text: str) -> dict[str, int]:
    """The files of the ledger with how often each may skip."""
    return {m[1]: int(m[2]) for m in re.finditer(r"^\| `([^`]+)` \| (\d+) \| [^|]{10,} \|$", text, re.MULTILINE)}


def test_the_ledger_is_exact(root):
    tests = root / "tests"
    found = {
        path.relative_to(tests).as_posix(): count
        for path in sorted(tests.rglob("*.py"))
        if (count := skips(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == listed((tests / "skips.md").read_text(encoding="utf-8"))


def test_a_skip_is_seen():
    assert skips(ast.parse("@pytest.mark.skipif(True, reason='x')\ndef test(): pytest.skip('y')")) == 2
