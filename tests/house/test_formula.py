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


def second_formulas(name: str, tree: ast.AST) -> list[str]:
    """Where a file outside `formula/` works attention out itself."""
    if name.startswith(AT_HOME):
        return []
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    own = [f.name for f in functions if called(f) & SHARES and called(f) & {*PRODUCTS, "@"}]
    return own + ([FUSED] if FUSED in called(tree) and name != FUSED_HOME else [])


def test_attention_is_written_once(sources):
    assert not {source.name: found for source in sources if (found := second_formulas(source.name, source.tree))}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("models/decoder.py", "def f(q, k, v): return torch.softmax(q @ k.T, -1) @ v"),
        ("looking/rows.py", "def f(q, k): return xp.softmax(np.einsum('id,jd->ij', q, k))"),
        ("models/decoder.py", "def f(q, k, v): return F.scaled_dot_product_attention(q, k, v)"),
    ],
)
def test_a_second_formula_is_found(name, code):
    assert second_formulas(name, ast.parse(code))


def test_choosing_a_token_is_no_second_formula():
    assert not second_formulas("generation/sampling.py", ast.parse("def f(logits): return torch.softmax(logits, -1)"))
