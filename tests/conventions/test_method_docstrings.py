"""Every public method has a docstring, or overrides one that has: what it says is not repeated."""

import ast
from collections.abc import Iterable


def undocumented(trees: Iterable[ast.Module]) -> list[str]:
    """Names of the public methods without a docstring whose bases, by name, document no method of that name."""
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    bases = {c.name: {name for base in c.bases for name in base_names(base)} for c in classes}
    documented = {(c.name, m.name) for c in classes for m in methods(c) if ast.get_docstring(m)}

    def inherits(name: str, method: str) -> bool:
        return any((base, method) in documented or inherits(base, method) for base in bases.get(name, ()))

    public = [c for c in classes if not c.name.startswith("_")]
    return [
        f"{c.name}.{m.name}"
        for c in public
        for m in methods(c)
        if not m.name.startswith("_") and not ast.get_docstring(m) and not is_exempt(m) and not inherits(c.name, m.name)
    ]


def base_names(base: ast.expr) -> list[str]:
    """The last name of a base class: `Step` of `graph.Step`, `Model` of `Model[KVCache]`."""
    base = base.value if isinstance(base, ast.Subscript) else base
    return [base.attr] if isinstance(base, ast.Attribute) else [base.id] if isinstance(base, ast.Name) else []


def methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_exempt(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True for overloads, whose implementation has the docstring, and for methods of a protocol (`...`)."""
    decorators = {ast.unparse(decorator) for decorator in method.decorator_list}
    return "overload" in decorators or ast.unparse(method.body[0]) == "..."


def test_every_public_method_is_documented_or_overrides_a_documented_one(sources):
    assert not undocumented(source.tree for source in sources)


def test_a_method_without_docstring_is_noticed_unless_its_base_documents_it():
    base = 'class Step:\n    def forward(self):\n        """Return the output."""\n'
    own = "class Sum(Step):\n    def forward(self):\n        return 1\n    def backward(self):\n        return 2\n"
    assert undocumented([ast.parse(base + own)]) == ["Sum.backward"]
    assert undocumented([ast.parse(own)]) == ["Sum.forward", "Sum.backward"]
