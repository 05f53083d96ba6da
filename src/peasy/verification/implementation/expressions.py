"""Calls given by the user: expressions such as `Attention(48, 4)(x)`."""

import ast
import contextlib
import dataclasses
import inspect
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from peasy.errors import UsageError
from peasy.verification.implementation.arguments import ConfigGuess, Sizes, seeded_array
from peasy.verification.implementation.call_text import CALL_HINT, CALL_NAMES, CallFailure, failure
from peasy.verification.implementation.creation import instantiate, is_module, module_class
from peasy.verification.implementation.forms import Attempt, from_layout, in_layout, lengths_of, run_filled, widths_of
from peasy.verification.implementation.layouts import Layout, layouts
from peasy.verification.implementation.repeated_call import RepeatedCall
from peasy.verification.implementation.trace import Op


def expression_attempts(
    text: str, namespace: Mapping[str, object], sizes: Sizes, seed: int, failures: list[CallFailure], file: str
) -> Iterator[Attempt]:
    """Yield subjects for an expression of the user: classes in it are created once, arrays get every layout in turn."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise UsageError(f'"{text}" is not a Python expression: {error.msg}.', hint=CALL_HINT) from None
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names = {**_call_constants(sizes), **namespace}
    try:
        tree, made, ops, buffers = _create_objects(tree, names, seed)
    except Exception as error:
        failures.append(failure(error, text, file))
        return
    arrays = {name: role for name, role in CALL_NAMES.items() if name in used and name not in namespace}
    if not arrays:
        raise UsageError(f'"{text}" uses none of the arrays {", ".join(CALL_NAMES)}.', hint=CALL_HINT)
    code = compile(ast.fix_missing_locations(tree), "<call>", "eval")
    own = {f"{i}.{n}" if i else n: p for i, m in enumerate(made) if is_module(m) for n, p in m.named_parameters()}
    widths = [*widths_of(own, sizes), sizes.d_model]
    imported = {str(getattr(value, "__name__", "")).partition(".")[0] for value in namespace.values()}
    libraries = (
        ("torch",) if own or "numpy" not in imported else ("torch", "numpy") if "torch" in imported else ("numpy",)
    )
    lengths = [sizes.time, sizes.length, *lengths_of(own, buffers, sizes)]
    shapes = [
        (each, layout) for each in (dataclasses.replace(sizes, time=time) for time in lengths)
        for layout in layouts(each, bool(own) or "x" in arrays, widths)
    ]  # fmt: skip
    for library, (each, layout) in itertools.product(libraries, shapes):
        inputs = {name: seeded_array(role, layout.shape(each, role), seed) for name, role in arrays.items()}

        def run(values: Mapping[str, object], layout: Layout = layout) -> object:
            given = in_layout(layout, {name: values[name] for name in arrays}, arrays)
            return from_layout(layout, eval(code, {**names, "mask": None, **values, **given}))

        subject = RepeatedCall(run, inputs, library, {}, text=text)
        subject.buffer_ops, subject.buffers = ops, buffers
        if failed := run_filled(subject, made, seed, file):
            failures += failed
            continue
        masks = {"mask": "mask"} if "mask" in used else {}
        yield Attempt(subject, dict(arrays), masks, [], made[0] if made else None, [], each, layout)


def _call_constants(sizes: Sizes) -> dict[str, object]:
    import math

    names: dict[str, object] = {
        "np": np, "math": math, "heads": sizes.heads, "n_heads": sizes.heads, "num_heads": sizes.heads,
        "d_model": sizes.d_model, "d_k": sizes.d_head, "d_head": sizes.d_head, "batch": sizes.batch, "time": sizes.time,
        "cache": None, "w_q": None, "settings": lambda **given: ConfigGuess(sizes, given),
    }  # fmt: skip
    module = module_class()
    if module is not None:
        import torch

        names |= {"torch": torch, "nn": torch.nn}
    return names


def _create_objects(
    tree: ast.Expression, names: Mapping[str, object], seed: int
) -> tuple[ast.Expression, list[Any], dict[int, list[Op]], dict[str, object]]:
    """Replace each call of a class whose arguments use no arrays by the object, created once."""
    made: list[object] = []
    ops: dict[int, list[Op]] = {}
    buffers: dict[str, object] = {}

    def evaluate(node: ast.expr) -> object:
        return eval(compile(ast.Expression(node), "<call>", "eval"), dict(names))

    class Creator(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            function = None
            with contextlib.suppress(NameError):
                function = None if used & {*CALL_NAMES, "mask"} else evaluate(node.func)
            known = str(getattr(function, "__module__", "")).partition(".")[0] in ("builtins", "torch", "numpy")
            if not inspect.isclass(function) or (known and not hasattr(function, "forward")):
                self.generic_visit(node)
                return node
            keywords = {str(keyword.arg): evaluate(keyword.value) for keyword in node.keywords}
            bound = inspect.signature(function).bind(*map(evaluate, node.args), **keywords)
            result, own_ops, own_buffers = instantiate(function, bound.kwargs, seed, bound.args)
            made.append(result)
            ops.update(own_ops)
            buffers.update(own_buffers)
            names[f"_object_{len(made)}"] = result  # type: ignore[index]
            return ast.copy_location(ast.Name(f"_object_{len(made)}", ast.Load()), node)

    return Creator().visit(tree), made, ops, buffers
