"""Calls to try: a function or module with guessed arguments, or an expression given by the user, as subjects."""

import ast
import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peasy.errors import UsageError
from peasy.verification.implementation.arguments import (
    ROTARY_FORMS,
    ROTARY_ROLES,
    Array,
    ConfigGuess,
    Layout,
    Sizes,
    constructor_attempts,
    layouts,
    rotary_tables,
    signature_of,
)
from peasy.verification.implementation.names import role_of
from peasy.verification.implementation.repeated_call import RepeatedCall, quiet
from peasy.verification.implementation.trace import Op

_ARRAY_ROLES = ("query", "key", "value", "x", "source")
CALL_NAMES = {"q": "query", "k": "key", "v": "value", "x": "x", "source": "source", "context": "source", "y": "source"}
"""Names of arrays in `--call`, and their roles."""
CALL_HINT = 'For example: --call "attention(q, k, v, mask)" or --call "Attention(48, 4)(x)"'


@dataclass(frozen=True)
class CallFailure:
    """A call that raised: its text, the error and the line in the user's file."""

    call: str
    error: str
    file: str = ""
    line: int | None = None
    code: str = ""

    def summary(self) -> str:
        """Return the call, the error and its line."""
        where = f" (line {self.line}: {self.code})" if self.line else ""
        return f"{self.call} raised {self.error}{where}"


@dataclass(eq=False)
class Attempt:
    """A way to call the code: the subject, the roles of its inputs, and what else its signature offers."""

    subject: RepeatedCall
    roles: dict[str, str]
    mask_names: dict[str, str] = field(default_factory=dict)
    flag_names: list[str] = field(default_factory=list)
    free_scale: bool = False
    module: Any = None
    parameters: list[inspect.Parameter] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    layout: Layout | None = None


def failure(error: BaseException, call: str, file: str) -> CallFailure:
    """Describe an exception of the examined code: the innermost line in its own file, else in any user file."""
    import linecache
    import traceback

    text = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return CallFailure(call, text, error.filename, error.lineno, (error.text or "").strip())
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file] or [
        frame for frame in frames if "site-packages" not in frame.filename and "peasy" not in frame.filename
    ]
    if not own:
        return CallFailure(call, text)
    last = own[-1]
    code = linecache.getline(last.filename, last.lineno or 0).strip()
    return CallFailure(call, text, last.filename, last.lineno, code)


def instantiate(cls: type, arguments: Mapping[str, Any], seed: int) -> tuple[Any, dict[int, list[Op]], dict[str, Any]]:
    """Create an object; return it with the operations that made its buffers, and its buffers."""
    module_class = _module_class()
    with quiet():
        if module_class is None or not issubclass(cls, module_class):
            return cls(**arguments), {}, {}
        import torch

        from peasy.verification.implementation.torch_trace import TorchRecorder, buffer_ops

        torch.manual_seed(seed)
        recorder = TorchRecorder({}, {}, snapshots=False)
        with recorder:
            made = cls(**arguments)
    made.eval()
    tensors = dict(made.named_buffers())
    for name, submodule in made.named_modules():
        tensors |= {f"{name}.{key}": value for key, value in vars(submodule).items() if isinstance(value, torch.Tensor)}
    return made, buffer_ops(recorder, tensors), tensors


def _module_class() -> Any:
    import sys

    torch_nn = sys.modules.get("torch.nn")
    return None if torch_nn is None else torch_nn.Module


def is_module(value: Any) -> bool:
    """Return whether this is an nn.Module."""
    module_class = _module_class()
    return module_class is not None and isinstance(value, module_class)


def fill_parameters(module: Any, seed: int) -> None:
    """Fill all parameters with seeded, distinct, well-scaled numbers: nothing is zero, equal or an identity."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not parameter.is_floating_point() or parameter.numel() <= 1:
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() >= 2:
                value = noise * min(parameter.shape[-1], parameter[0].numel()) ** -0.5
            elif name.endswith("weight") or "gamma" in name or "scale" in name:
                value = 1 + 0.2 * noise
            else:
                value = 0.2 * noise
            parameter.copy_(value.to(parameter.dtype))


def seeded_array(name: str, shape: tuple[int, ...], seed: int) -> Array:
    """Return normally distributed float32 values that depend on seed and name only."""
    rng = np.random.default_rng([seed, *name.encode()])
    return np.asarray(rng.normal(0, 1, shape), dtype=np.float32)


def roles_of(parameters: list[inspect.Parameter]) -> dict[str, str]:
    """Return roles by parameter name; if none is known, the first required ones are q, k, v, or x."""
    roles = {p.name: role_of(p.name) for p in parameters}
    if set(roles.values()) & {"query", "key", "value", "x"}:
        if "x" in roles.values() and "query" not in roles.values() and {"key", "value"} <= set(roles.values()):
            roles = {name: "query" if role == "x" else role for name, role in roles.items()}
        return roles
    required = [p.name for p in parameters if p.default is p.empty and roles[p.name] in ("", "source")]
    guessed = {1: ("x",), 2: ("query", "source"), 3: ("query", "key", "value"), 4: ("query", "key", "value", "mask")}
    return roles | dict(zip(required, guessed.get(len(required), ()), strict=False))


def attempts(target: Any, sizes: Sizes, seed: int, failures: list[CallFailure], file: str) -> Iterator[Attempt]:
    """Yield ways to call a target that run, most likely first; `failures` collects what was tried in vain."""
    if inspect.isclass(target):
        for arguments in _unique(constructor_attempts(target, sizes)):
            text = f"{target.__name__}({', '.join(f'{k}={_short(v)}' for k, v in arguments.items())})"
            try:
                made, ops, buffers = instantiate(target, arguments, seed)
            except Exception as error:
                failures.append(failure(error, text, file))
                continue
            free = any(role_of(name, True) in ("scale",) for name in arguments)
            yield from _call_attempts(made, text, ops, buffers, sizes, seed, failures, file, free)
    else:
        name = getattr(target, "__name__", type(target).__name__)
        yield from _call_attempts(target, name, {}, {}, sizes, seed, failures, file, False)


def _unique(items: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    for item in items:
        key = repr(sorted((k, _short(v)) for k, v in item.items()))
        if key not in seen:
            seen.add(key)
            yield item


def _short(value: Any) -> str:
    return "config" if isinstance(value, ConfigGuess) else repr(value) if len(repr(value)) < 40 else "..."


def _call_attempts(
    made: Any, text: str, ops: dict[int, list[Op]], buffers: dict[str, Any], sizes: Sizes, seed: int,
    failures: list[CallFailure], file: str, free_scale: bool,
) -> Iterator[Attempt]:  # fmt: skip
    function = made.forward if is_module(made) else made
    if not callable(function):
        function = getattr(made, "forward", None) or getattr(made, "call", None) or made
    parameters = signature_of(function)
    roles = roles_of(parameters)
    own = dict(made.named_parameters()) if is_module(made) else {}
    widths = _widths(own, sizes)
    flat = bool(own) or "heads" in roles.values() or "x" in roles.values() or "w_q" in roles.values()
    several = [sizes, dataclasses.replace(sizes, time=sizes.length)] if own else [sizes]
    for sizes, layout in ((each, layout) for each in several for layout in layouts(each, flat, widths)):
        if "heads" in roles.values() and "h" in layout.axes:
            continue
        for library, with_none, form in _forms(roles, parameters, _libraries(function, made)):
            subject = _subject(made, function, text, parameters, roles, layout, sizes, seed, with_none, form, library)
            if subject is None:
                continue
            subject.buffer_ops, subject.buffers = ops, buffers
            try:
                subject.plain()
                if is_module(made):
                    fill_parameters(made, seed)
                    subject.parameters |= dict(made.named_parameters())
                subject.plain()
            except Exception as error:
                failures.append(failure(error, subject.text, file))
                continue
            masks = {n: r for n, r in roles.items() if r in ("mask", "padding") and n not in subject.inputs}
            flags = [n for n, r in roles.items() if r == "causal"]
            free = free_scale and False
            input_roles = {n: roles.get(n, "") for n in subject.inputs}
            yield Attempt(subject, input_roles, masks, flags, free, made, parameters, sizes, layout)


def _forms(
    roles: Mapping[str, str], parameters: list[inspect.Parameter], libraries: tuple[str, ...]
) -> Iterator[tuple[str, bool, int]]:
    """Yield the library of arrays, and what required masks (None or all True) and rotary tables (by form) may be."""
    required = {roles.get(p.name, "") for p in parameters if p.default is p.empty}
    masks = (True, False) if required & {"mask", "padding"} else (True,)
    yield from itertools.product(libraries, masks, range(ROTARY_FORMS) if required & set(ROTARY_ROLES) else (0,))


def _widths(parameters: Mapping[str, Any], sizes: Sizes) -> list[int]:
    """Return the widths that an input may have: the model's, then input widths of the layers."""
    parameters = {name: p for name, p in parameters.items() if "Uninitialized" not in type(p).__name__}  # lazy layers
    found = [int(p.shape[1]) for p in parameters.values() if p.dim() == 2] + [
        int(p.shape[0]) for p in parameters.values() if p.dim() == 2
    ]
    known = [sizes.d_model] if not found or sizes.d_model in found else []
    return [*known, *dict.fromkeys(found), *([] if known else [sizes.d_model])]


def _subject(
    made: Any, function: Any, text: str, parameters: list[inspect.Parameter], roles: dict[str, str], layout: Layout,
    sizes: Sizes, seed: int, with_none: bool, form: int, library: str,
) -> RepeatedCall | None:  # fmt: skip
    """Return the subject for one layout: arrays by role, other required arguments by role, or None."""
    inputs: dict[str, Array] = {}
    constants: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    for parameter in parameters:
        role, required = roles.get(parameter.name, ""), parameter.default is parameter.empty
        if role in _ARRAY_ROLES and (required or role in ("query", "key", "value", "x")):
            inputs[parameter.name] = seeded_array(role, layout.shape(sizes), seed)
        elif role.startswith("w_") and len(role) == 3 and required:
            width = layout.width
            shape = (width, width)
            weights[parameter.name] = seeded_array(role, shape, seed) * width**-0.5
        elif role == "heads" and required:
            constants[parameter.name] = sizes.heads
        elif required:
            constants[parameter.name] = _required(parameter.name, role, sizes, with_none, form, library)
    if not inputs:
        return None
    if library == "torch":
        import torch

        weights = {name: torch.from_numpy(value) for name, value in weights.items()}
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    target = made if is_module(made) or callable(made) else function

    def run(values: Mapping[str, Any]) -> Any:
        bound = {**weights, **values}
        return target(*(bound[name] for name in names), **{k: v for k, v in bound.items() if k not in names})

    shown = [f"{n}" for n in inputs] + [f"{n}={_short(v)}" for n, v in constants.items() if "tensor" not in repr(v)[:8]]
    call = f"{text}({', '.join(shown)})"
    return RepeatedCall(run, inputs, library, dict(weights), constants=constants, text=call)


def _required(name: str, role: str, sizes: Sizes, with_none: bool, form: int, library: str) -> Any:
    """Return a required argument that is not an array of tokens."""
    if role in ROTARY_ROLES:
        return rotary_tables(sizes, sizes.time, form)[role]
    if role == "position_ids":
        import torch

        return torch.arange(sizes.time)[None]
    if role in ("mask", "padding"):
        mask = None if with_none else np.ones((sizes.time, sizes.time), dtype=bool)
        if mask is None or library == "numpy":
            return mask
        import torch

        return torch.from_numpy(mask)
    if name == "window_size":
        return (-1, 0)
    if role == "offset":
        return 0
    value = sizes.constructor_value(role)
    if isinstance(value, int | float | str):
        return value if role != "causal" else False
    return None


def _libraries(function: Any, made: Any) -> tuple[str, ...]:
    """Return the libraries to try: by the names in the function's code, then by what its file imports."""
    if is_module(made):
        return ("torch",)
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):
        function = next((vars(base)["__call__"] for base in type(made).__mro__ if "__call__" in vars(base)), function)
    names = set(getattr(getattr(function, "__code__", None), "co_names", ()))
    scope = getattr(function, "__globals__", {})
    modules = {getattr(scope.get(name), "__name__", "").partition(".")[0] for name in names}
    if "torch" in modules or not scope:
        return ("torch",)
    if "numpy" in modules:
        return ("numpy",)
    imported = {getattr(value, "__name__", "").partition(".")[0] for value in scope.values() if inspect.ismodule(value)}
    imported |= {str(getattr(value, "__module__", "")).partition(".")[0] for value in scope.values() if callable(value)}
    if "torch" in imported:
        return ("torch", "numpy") if "numpy" in imported else ("torch",)
    return ("numpy", "torch")


def expression_attempts(
    text: str, namespace: Mapping[str, Any], sizes: Sizes, seed: int, failures: list[CallFailure], file: str
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
    widths = [*_widths(own, sizes), sizes.d_model]
    imported = {str(getattr(value, "__name__", "")).partition(".")[0] for value in namespace.values()}
    libraries = (
        ("torch",) if own or "numpy" not in imported else ("torch", "numpy") if "torch" in imported else ("numpy",)
    )
    several = itertools.product(libraries, layouts(sizes, bool(own) or "x" in arrays, widths))
    for library, layout in several:
        inputs = {name: seeded_array(role, layout.shape(sizes), seed) for name, role in arrays.items()}

        def run(values: Mapping[str, Any]) -> Any:
            return eval(code, {**names, "mask": None, **values})

        subject = RepeatedCall(run, inputs, library, {}, text=text)
        subject.buffer_ops, subject.buffers = ops, buffers
        try:
            subject.plain()
            for module in made:
                if is_module(module):
                    fill_parameters(module, seed)
            subject.parameters = own
        except Exception as error:
            failures.append(failure(error, text, file))
            continue
        masks = {"mask": "mask"} if "mask" in used else {}
        yield Attempt(subject, dict(arrays), masks, [], False, made[0] if made else None, [], sizes, layout)


def _call_constants(sizes: Sizes) -> dict[str, Any]:
    import math

    names: dict[str, Any] = {
        "np": np, "math": math, "heads": sizes.heads, "n_heads": sizes.heads, "num_heads": sizes.heads,
        "d_model": sizes.d_model, "d_k": sizes.d_head, "d_head": sizes.d_head, "batch": sizes.batch, "time": sizes.time,
        "cache": None, "w_q": None,
    }  # fmt: skip
    module = _module_class()
    if module is not None:
        import torch

        names["torch"] = torch
    return names


def _create_objects(
    tree: ast.Expression, names: Mapping[str, Any], seed: int
) -> tuple[ast.Expression, list[Any], dict[int, list[Op]], dict[str, Any]]:
    """Replace each call of a class whose arguments use no arrays by the object, created once."""
    made: list[Any] = []
    ops: dict[int, list[Op]] = {}
    buffers: dict[str, Any] = {}

    class Creator(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            if not used & {*CALL_NAMES, "mask"}:
                try:
                    function = eval(compile(ast.Expression(node.func), "<call>", "eval"), dict(names))
                except NameError:
                    function = None
                if inspect.isclass(function) and _has_call(function):
                    signature = inspect.signature(function)
                    args = [eval(compile(ast.Expression(each), "<call>", "eval"), dict(names)) for each in node.args]
                    kwargs = {
                        str(k.arg): eval(compile(ast.Expression(k.value), "<call>", "eval"), dict(names))
                        for k in node.keywords
                    }
                    bound = signature.bind(*args, **kwargs)
                    result, own_ops, own_buffers = instantiate(function, bound.arguments, seed)
                    made.append(result)
                    ops.update(own_ops)
                    buffers.update(own_buffers)
                    name = f"_object_{len(made)}"
                    names[name] = result  # type: ignore[index]
                    return ast.copy_location(ast.Name(name, ast.Load()), node)
            self.generic_visit(node)
            return node

    return Creator().visit(tree), made, ops, buffers


def _has_call(cls: type) -> bool:
    return any("__call__" in vars(base) or "forward" in vars(base) for base in cls.__mro__)


Runner = Callable[[Mapping[str, Any]], Any]
