"""Attention is implemented once: no other module turns products of queries and keys into weights."""

import ast

import pytest

FUSED = "scaled_dot_product_attention"
PRODUCTS = {"matmul", "einsum", "bmm", "dot", "tensordot", "vecdot"}
SOFTMAXES = {"softmax", "log_softmax", "softmin"}
FORMULA_PACKAGE = "formula/"
FUSED_MODULES = {
    "nn/attention_backends.py",
    "verification/implementation/package_functions.py",  # for examined code that calls a package's kernel
}


def called_names(tree: ast.AST) -> set[str]:
    """Last names of all called functions: `softmax` for `torch.softmax(...)`, and `@` for a matrix product."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {
        f.attr if isinstance(f, ast.Attribute) else f.id for f in calls if isinstance(f, (ast.Attribute, ast.Name))
    }
    return names | {"@" for node in ast.walk(tree) if isinstance(node, ast.MatMult)}


def reachable_calls(tree: ast.AST) -> list[tuple[str, set[str]]]:
    """Return each function of a file with the names it calls, directly or through other functions of that file."""
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    calls_of = [(function.name, called_names(function)) for function in functions]
    for _ in calls_of:
        calls_of = [
            (name, calls.union(*(indirect for other, indirect in calls_of if other in calls)))
            for name, calls in calls_of
        ]
    return calls_of


def second_formulas(name: str, tree: ast.AST) -> list[str]:
    """Return the functions outside `formula/` that compute attention themselves, in one function or in several."""
    if name.startswith(FORMULA_PACKAGE):
        return []
    own = [function for function, calls in reachable_calls(tree) if calls & SOFTMAXES and calls & {*PRODUCTS, "@"}]
    return own + ([FUSED] if FUSED in called_names(tree) and name not in FUSED_MODULES else [])


def test_attention_is_implemented_once(sources):
    assert not {
        source.name: functions for source in sources if (functions := second_formulas(source.name, source.tree))
    }


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("models/decoder.py", "def f(q, k, v): return torch.softmax(q @ k.T, -1) @ v"),
        ("inspection/rows.py", "def f(q, k): return xp.softmax(np.einsum('id,jd->ij', q, k))"),
        ("inspection/tiles.py", "def g(q, k): return q @ k.T\ndef f(q, k): return torch.softmax(g(q, k), -1)"),
        (
            "inspection/tiles.py",
            "def f(q, k): return g(q @ k.T)\ndef g(s): return h(s)\ndef h(s): return s.softmax(-1)",
        ),
        ("models/decoder.py", "def f(q, k, v): return F.scaled_dot_product_attention(q, k, v)"),
    ],
)
def test_a_second_implementation_is_found(name, code):
    assert second_formulas(name, ast.parse(code))


def test_sampling_a_token_is_no_second_implementation():
    assert not second_formulas("generation/sampling.py", ast.parse("def f(logits): return torch.softmax(logits, -1)"))
