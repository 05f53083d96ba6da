"""Forms of a call: layout, library, masks and other arguments, by the roles of the parameters."""

import dataclasses
import inspect
import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peasy.verification.implementation.arguments import (
    MASK_FORMS,
    ROTARY_FORMS,
    ROTARY_ROLES,
    ConfigGuess,
    Sizes,
    open_mask,
    rotary_tables,
    seeded_array,
    source_of,
)
from peasy.verification.implementation.call_text import CallFailure, array_name, failure, short_text, shown_text
from peasy.verification.implementation.core import Array
from peasy.verification.implementation.creation import fill_parameters, is_module
from peasy.verification.implementation.layouts import ONE_QUERY, Layout, declared_layouts, layouts
from peasy.verification.implementation.names import role_of
from peasy.verification.implementation.repeated_call import RepeatedCall

ARRAY_ROLES = ("query", "key", "value", "x", "source")


@dataclass(eq=False)
class Attempt:
    """A way to call the code: the subject, the roles of its inputs, and what else its signature offers."""

    subject: RepeatedCall
    roles: dict[str, str]
    mask_names: dict[str, str] = field(default_factory=dict)
    flag_names: list[str] = field(default_factory=list)
    module: Any = None
    parameters: list[inspect.Parameter] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    layout: Layout | None = None
    guessed: bool = False
    """Whether settings are guessed whose names are not known."""
    invented: str = ""
    """Arguments that got a module which changes nothing."""


@dataclass(frozen=True)
class Form:
    """One way to fill the arguments of a call; `mask` and `rotary` are forms, `grouped_weights` puts them in dicts."""

    layout: Layout
    sizes: Sizes
    library: str = "torch"
    mask: tuple[str, bool] | None = None
    rotary: int = 0
    grouped_weights: bool = False
    with_optional: bool = False
    """Whether arguments that may be None get their value: a source, positions, rotary tables."""
    unknown: str = ""
    """Arrays for arguments that are not known: of "tokens" or of "heads"."""


def unpacked(
    function: object, parameters: list[inspect.Parameter]
) -> tuple[list[inspect.Parameter], dict[str, list[str]]]:
    """Return the parameters, with the parts of those that the code unpacks in one line, and the names of the parts."""
    packed: dict[str, list[str]] = {}
    flat: list[inspect.Parameter] = []
    source = source_of(function)
    for parameter in parameters:
        name = parameter.name
        unpacking = re.search(rf"^\s*\(?(\w+(?:, *\w+)+)\)? = {name}(?: *#.*)?$", source, re.M)
        items = re.findall(rf"^\s*(\w+) = .*\b{name}\[(\d)\]", source, re.M)
        parts = re.findall(r"\w+", unpacking[1]) if unpacking else [part for part, _ in items]
        if not unpacking and [number for _, number in items] not in (["0", "1"], ["0", "1", "2"]):
            used = {*re.findall(rf"\b{name}\b(?:\[(\d)\])?", source.partition(name)[2])}  # as keys[0] and keys[1]
            parts = [f"{name}_keys", f"{name}_values"] if used == {"0", "1"} and role_of(name) in ("", "source") else []
        if not parts or parameter.default is not parameter.empty:
            flat.append(parameter)
            continue
        packed[name] = parts
        flat += [inspect.Parameter(part, parameter.POSITIONAL_OR_KEYWORD) for part in parts]
    return flat, packed


def forms(
    made: Any, function: object, parameters: list[inspect.Parameter], roles: Mapping[str, str], sizes: Sizes,
    buffers: Mapping[str, object],
) -> Iterator[Form]:  # fmt: skip
    """Yield ways to fill the arguments, most likely first: masks that hide nothing come after no mask at all."""
    required = {roles.get(p.name, "") for p in parameters if p.default is p.empty}
    own = dict(made.named_parameters()) if is_module(made) else {}
    flat = bool(own) or bool({"heads", "x", "w_q", "w_qkv"} & set(roles.values()))
    widths = widths_of(own, sizes)
    if "qkv" in roles:
        widths = [3 * sizes.d_model, *widths]
    convolutional = any(p.dim() > 2 for p in own.values() if "Uninitialized" not in type(p).__name__)
    several = [sizes, dataclasses.replace(sizes, time=sizes.length)]
    several += [dataclasses.replace(sizes, time=each, side=each) for each in lengths_of(own, buffers, sizes)]
    if {"h", "w"} <= {name.lower() for name in roles}:  # a feature map as tokens, after a token for its class
        several.append(dataclasses.replace(sizes, time=sizes.side**2 + 1))
    shapes = [(each, layout) for each in several for layout in declared_layouts(function, roles, each, widths)]
    shapes += [(each, layout) for each in several for layout in layouts(each, flat, widths, convolutional)
               if "heads" not in roles.values() or "h" not in layout.axes]  # fmt: skip
    shapes = list(dict.fromkeys(shapes))
    if {"key", "source"} & set(roles.values()):
        shapes += [(sizes, Layout(axes, width, keys)) for width in dict.fromkeys(widths) for axes, keys in ONE_QUERY]
    masks = MASK_FORMS if {"mask", "padding"} & set(roles.values()) else MASK_FORMS[:1]
    optional = {roles[p.name] for p in parameters if p.default is None}
    rotary = ROTARY_FORMS if {*required, *optional} & {*ROTARY_ROLES} else (0,)
    weights = (False, True) if any(role.startswith("w_") for role in required) else (False,)
    sources = (False, True) if optional & {"source", "position_ids", *ROTARY_ROLES} else (False,)
    unknown = ("", "tokens", "heads") if "" in required else ("",)
    outer = itertools.product(unknown, masks, sources, shapes, _libraries(function, made), rotary, weights)
    for array, mask, source, (each, layout), library, number, grouped in outer:
        if number == 0 or source or required & {*ROTARY_ROLES}:
            yield Form(layout, each, library, mask, number, grouped, source, array)


def lengths_of(parameters: Mapping[str, Any], buffers: Mapping[str, Any], sizes: Sizes) -> list[int]:
    """Return lengths that tables of a module may be made for: masks, positions; three at most."""
    weights = [p for p in parameters.values() if "Uninitialized" not in type(p).__name__]
    known = {sizes.time, sizes.length, sizes.d_model, sizes.d_head, sizes.heads, sizes.batch}
    known |= {int(n) for p in weights if p.dim() == 2 for n in p.shape}
    found = [int(n) for table in (*buffers.values(), *weights) if table.dim() > 1 for n in table.shape[-2:]]
    return [n for n in dict.fromkeys(found) if 3 < n <= 64 and n not in known][:3]


def widths_of(parameters: Mapping[str, Any], sizes: Sizes) -> list[int]:
    """Return the widths that an input may have: the model's, then input widths of the layers."""
    parameters = {name: p for name, p in parameters.items() if "Uninitialized" not in type(p).__name__}  # lazy layers
    found = [int(p.shape[1]) for p in parameters.values() if p.dim() >= 2]
    found += [int(p.shape[0]) for p in parameters.values() if p.dim() == 2]
    known = [sizes.d_model] if not found or sizes.d_model in found else []
    return [*known, *filter(None, dict.fromkeys(found)), *([] if known else [sizes.d_model])]


@dataclass(frozen=True)
class Arguments:
    """Arguments of a call: arrays that vary, weights, and values that are passed as they are."""

    inputs: Mapping[str, Array]
    constants: Mapping[str, Any]
    weights: Mapping[str, Any] = field(default_factory=dict)
    library: str = "torch"
    layout: Layout | None = None
    packed: Mapping[str, list[str]] = field(default_factory=dict)
    """Names of the parts of arguments that are passed as one."""


def arguments_of(
    function: object, parameters: list[inspect.Parameter], roles: dict[str, str], form: Form, seed: int,
    packed: Mapping[str, list[str]],
) -> Arguments:  # fmt: skip
    """Return the arguments of one form: arrays by role, other required arguments by role."""
    inputs: dict[str, Array] = {}
    constants: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    for parameter in parameters:
        role, required = roles.get(parameter.name, ""), parameter.default is parameter.empty
        if (role in ARRAY_ROLES and (required or form.with_optional or role != "source")) or (
            role == "" and required and form.unknown
        ):
            heads = (form.sizes.heads * (2 if "g" in form.layout.axes else 1),)
            shape = heads if not role and form.unknown == "heads" else form.layout.shape(form.sizes, role)
            inputs[parameter.name] = seeded_array(role, shape, seed)
        elif role.startswith(("w_", "b_")) and required:
            weights |= _weight(parameter.name, role, form, seed)
        elif role == "heads" and required:
            constants[parameter.name] = form.sizes.heads
        elif (
            required
            or (form.with_optional and parameter.default is None and role in ("position_ids", *ROTARY_ROLES))
            or (role in ("mask", "padding") and form.mask is not None)
            or (role == "scale" and _is_off(parameter, function))
        ):
            constants[parameter.name] = required_value(parameter.name, role, form)
    if form.library == "torch":
        import torch

        weights = {name: torch.from_numpy(value) for name, value in weights.items()}
    return Arguments(inputs, constants, weights, form.library, form.layout, packed)


def subject_of(
    made: Any, function: Any, text: str, parameters: list[inspect.Parameter], roles: dict[str, str], given: Arguments,
    array_class: Any = None,
) -> RepeatedCall:  # fmt: skip
    """Return the call of a function, or of an object whose method it is, with these arguments."""
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    target = made if is_module(made) and function == made.forward else function  # a module runs its hooks, too
    inputs, layout = given.inputs, given.layout

    def run(values: Mapping[str, Any]) -> Any:
        bound = _grouped({**given.weights, **values})
        bound |= in_layout(layout, {name: bound[name] for name in inputs}, roles) if layout else {}
        bound |= {name: array_class(bound[name]) for name in inputs} if array_class else {}
        bound |= {name: tuple(bound.pop(part) for part in parts) for name, parts in given.packed.items()}
        first = [bound.pop(name) for name in positional]
        result = target(*first, **bound)
        return from_layout(layout, result) if layout else result

    shown = {name: array_name(roles.get(name, "") or "source") for name in inputs}
    shown |= {name: f"Tensor({array})" for name, array in shown.items()} if array_class else {}
    shown |= {n: short_text(v) for n, v in given.constants.items() if layout is None or not hasattr(v, "dim")}
    for name, parts in given.packed.items():
        shown[name] = f"({', '.join(shown.pop(part, '...') for part in parts)})"
    return RepeatedCall(
        run, dict(inputs), given.library, dict(given.weights), constants=dict(given.constants),
        text=f"{text}({shown_text(shown)})", owner=made,
    )  # fmt: skip


def array_class_of(function: Any) -> Any:
    """Return the project's own class of arrays that a function's file knows, one around NumPy; None without."""
    known = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__globals__", {}).get("Tensor")
    return known if inspect.isclass(known) and not known.__module__.startswith(("torch", "numpy")) else None


def run_filled(
    subject: RepeatedCall, objects: list[Any], seed: int, file: str, finite: bool = False
) -> list[CallFailure]:
    """Run a call, fill the parameters of its modules, some of which may be there only then, and run it again.

    Return its error, if it raises one, or if its output has to be `finite` and is not.
    """
    try:
        outputs = subject.plain()
        modules = [each for each in objects if is_module(each)]
        for number, module in enumerate(modules):
            fill_parameters(module, seed)
            subject.parameters |= {f"{number}.{n}" if number else n: p for n, p in module.named_parameters()}
        outputs = subject.plain() if modules else outputs
        if finite and not all(np.isfinite(array).all() for array in outputs):
            raise ValueError("its output is not finite: this mask hides everything")
    except Exception as error:
        return [failure(error, subject.text, file)]
    return []


def _is_off(parameter: inspect.Parameter, function: object) -> bool:
    """Return whether the default of a scale is not to scale: 1, or None where the code asks for it."""
    asks = rf"(?m)^\s*if {parameter.name}(?: is not None)?:"
    return parameter.default == 1 or (parameter.default is None and bool(re.search(asks, source_of(function))))


def _weight(name: str, role: str, form: Form, seed: int) -> dict[str, Array]:
    """Return a weight matrix or a bias vector; in a dictionary both, as `name.w` and `name.b`."""
    width = form.layout.width
    columns = 3 * width if role == "w_qkv" else width
    if role.startswith("b_"):
        return {name: seeded_array(role, (columns,), seed)}
    matrix = np.asarray(seeded_array(role, (width, columns), seed) * width**-0.5, dtype=np.float32)
    return (
        {f"{name}.w": matrix, f"{name}.b": seeded_array(name, (columns,), seed)}
        if form.grouped_weights else {name: matrix}
    )  # fmt: skip


def _grouped(values: Mapping[str, object]) -> dict[str, Any]:
    """Return values with names such as "c.w" and "c.b" as dictionaries under their first part."""
    grouped: dict[str, Any] = {}
    for name, value in values.items():
        first, dot, last = name.partition(".")
        if dot:
            grouped.setdefault(first, {})[last] = value
        else:
            grouped[name] = value
    return grouped


def in_layout(layout: Layout, arrays: Mapping[str, object], roles: Mapping[str, str]) -> dict[str, Any]:
    """Return arrays as the code expects them: channels after the batch, or keys transposed."""
    if layout.channels_first:
        return {name: _moved(array, -1, 1) for name, array in arrays.items()}
    keys = [name for name in arrays if layout.transposed_keys and roles[name] == "key"]
    return {**arrays, **{name: _moved(arrays[name], -1, -2) for name in keys}}


def from_layout(layout: Layout, result: object) -> object:
    """Return a result with the channels last."""
    if not layout.channels_first:
        return result
    several = result if isinstance(result, tuple | list) else [result]
    return [_moved(each, 1, -1) if getattr(each, "ndim", 0) > 2 else each for each in several]


def _moved(array: Any, source: int, target: int) -> object:
    if isinstance(array, np.ndarray):
        axes = list(range(array.ndim))
        axes.insert(target % array.ndim, axes.pop(source))
        return array.transpose(axes)
    return array.movedim(source, target).contiguous()


def required_value(name: str, role: str, form: Form) -> object:
    """Return a required argument that is not an array of tokens."""
    sizes = form.sizes
    if role == "config":
        return ConfigGuess(sizes)
    if role in ROTARY_ROLES:
        table = rotary_tables(sizes, sizes.time, form.rotary)[role]
        return table.numpy() if form.library == "numpy" and hasattr(table, "numpy") else table
    if role in ("position_ids", "valid_lengths"):
        import torch

        return torch.arange(sizes.time)[None] if role == "position_ids" else torch.full((sizes.batch,), sizes.time)
    if role in ("mask", "padding"):
        mask = open_mask(form.mask, sizes)
        if mask is None or form.library == "numpy":
            return mask
        import torch

        return torch.from_numpy(mask)
    if name == "window_size":
        return (-1, 0)
    if name.lower() in ("h", "w", "height", "width"):
        return sizes.side
    if role == "offset":
        return 0
    if role == "dtype":
        return np.float32 if form.library == "numpy" else getattr(sys.modules.get("torch"), "float32", None)
    value = sizes.constructor_value(role)
    if isinstance(value, int | float | str):
        return value if role != "causal" else False
    return None


def _libraries(function: Any, made: object) -> tuple[str, ...]:
    """Return the libraries to try: by the names in the function's code, then by what its file imports."""
    if is_module(made):
        return ("torch",)
    function = inspect.unwrap(getattr(function, "__func__", function))
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
