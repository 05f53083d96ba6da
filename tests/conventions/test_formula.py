"""The formula stands in one place: nobody else turns products of queries and keys into weights."""

import ast

import pytest

FUSED = "scaled_dot_product_attention"
PRODUCTS = {"matmul", "einsum", "bmm", "dot", "tensordot", "vecdot"}
SHARES = {"softmax", "log_softmax", "softmin"}
AT_HOME = "formula/"
FUSED_HOME = "nn/attention.py"


def called(tree: ast.AST) -> set[str]:
    """The last names of all that is called: `softmax` for `torch.softmax(...)`, and `@` for a matrix product."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {
        f.attr if isinstance(f, ast.Attribute) else f.id for f in calls if isinstance(f, (ast.Attribute, ast.Name))
    }
    return names | {"@" for node in ast.walk(tree) if isinstance(node, ast.MatMult)}


def reached(tree: ast.AST) -> list[tuple[str, set[str]]]:
    """What each function of a file calls, itself or through other functions of that file."""
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = [(each.name, called(each)) for each in functions]
    for _ in found:
        found = [(name, calls.union(*(theirs for other, theirs in found if other in calls))) for name, calls in found]
    return found


def second_formulas(name: str, tree: ast.AST) -> list[str]:
    """Where a file outside `formula/` works attention out itself, in one function or in several."""
    if name.startswith(AT_HOME):
        return []
    own = [each for each, calls in reached(tree) if calls & SHARES and calls & {*PRODUCTS, "@"}]
    return own + ([FUSED] if FUSED in called(tree) and name != FUSED_HOME else [])


def test_attention_is_written_once(sources):
    assert not {source.name: found for source in sources if (found := second_formulas(source.name, source.tree))}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("models/decoder.py", "def f(q, k, v): return torch.softmax(q @ k.T, -1) @ v"),
        ("looking/rows.py", "def f(q, k): return xp.softmax(np.einsum('id,jd->ij', q, k))"),
        ("inspection/tiles.py", "def g(q, k): return q @ k.T\ndef f(q, k): return torch.softmax(g(q, k), -1)"),
        (
            "inspection/tiles.py",
            "def f(q, k): return g(q @ k.T)\ndef g(s): return h(s)\ndef h(s): return s.softmax(-1)",
        ),
        ("models/decoder.py", "def f(q, k, v): return F.scaled_dot_product_attention(q, k, v)"),
    ],
)
def test_a_second_formula_is_found(name, code):
    assert second_formulas(name, ast.parse(code))


def test_choosing_a_token_is_no_second_formula():
    assert not second_formulas("generation/sampling.py", ast.parse("def f(logits): return torch.softmax(logits, -1)"))
