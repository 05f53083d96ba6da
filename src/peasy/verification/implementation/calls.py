"""Calls to try: a function or module with guessed arguments, or an expression given by the user, as subjects."""

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peasy.errors import UsageError
from peasy.verification.implementation.arguments import (
    MASK_FORMS,
    ONE_QUERY,
    ROTARY_FORMS,
    ROTARY_ROLES,
    Array,
    ConfigGuess,
    Layout,
    Sizes,
    constructor_attempts,
    declared_layouts,
    layouts,
    open_mask,
    rotary_tables,
    seeded_array,
    signature_of,
    source_of,
)
from peasy.verification.implementation.captured import CapturedCall, captured_calls, is_array
from peasy.verification.implementation.names import role_of
from peasy.verification.implementation.repairs import repaired_calls, start_arguments
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
    module: Any = None
    parameters: list[inspect.Parameter] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    layout: Layout | None = None
    guessed: bool = False
    """Whether settings are guessed whose names are not known."""


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


def instantiate(
    cls: type, arguments: Mapping[str, Any], seed: int, positional: tuple[Any, ...] = ()
) -> tuple[Any, dict[int, list[Op]], dict[str, Any]]:
    """Create an object; return it with the operations that made its buffers, and its buffers."""
    module_class = _module_class()
    with quiet():
        if module_class is None or not issubclass(cls, module_class):
            made = cls(*positional, **arguments)
            with contextlib.suppress(Exception):
                made.eval()  # its own switch, if it has one
            return made, {}, {}
        import torch

        from peasy.verification.implementation.torch_trace import TorchRecorder, buffer_ops

        torch.manual_seed(seed)
        recorder = TorchRecorder({}, {}, snapshots=False)
        with recorder:
            made = cls(*positional, **arguments)
    made.eval()
    if any(p.is_floating_point() and p.dtype != torch.float32 for p in made.parameters()):
        made.float()
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
    kernels = {id(each.weight) for each in module.modules() if isinstance(each, torch.nn.modules.conv._ConvNd)}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not parameter.is_floating_point():
                continue
            if parameter.numel() <= 1:  # a gate that begins at 0 hides the attention; a logarithm of a scale does not
                if not re.search(r"log|scale|temp|tau", name):
                    parameter.masked_fill_(parameter == 0, 0.7)
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() >= 2:
                value = noise * (parameter[0].numel() if id(parameter) in kernels else parameter.shape[-1]) ** -0.5
            elif name.endswith("weight") or "gamma" in name or "scale" in name:
                value = 1 + 0.2 * noise
            else:
                value = 0.2 * noise
            parameter.copy_(value.to(parameter.dtype))


def roles_of(parameters: list[inspect.Parameter]) -> dict[str, str]:
    """Return roles by parameter name; if none is known, the first required ones are q, k, v, or x."""
    roles = {p.name: role_of(p.name) for p in parameters}
    roles |= {p.name: "causal" for p in parameters if roles[p.name] == "mask" and isinstance(p.default, bool)}
    if set(roles.values()) & {"query", "key", "value", "x"}:
        if "x" in roles.values() and "query" not in roles.values() and {"key", "value"} <= set(roles.values()):
            roles = {name: "query" if role == "x" else role for name, role in roles.items()}
        return roles
    required = [p.name for p in parameters if p.default is p.empty and roles[p.name] in ("", "source")]
    first = ("source", "query") if [roles[name] for name in required] == ["source", ""] else ("query", "source")
    guessed = {1: ("x",), 2: first, 3: ("query", "key", "value"), 4: ("query", "key", "value", "mask")}
    return roles | dict(zip(required, guessed.get(len(required), ()), strict=False))


def attempts(target: Any, sizes: Sizes, seed: int, failures: list[CallFailure], file: str) -> Iterator[Attempt]:
    """Yield ways to call a target that run, most likely first; `failures` collects what was tried in vain."""
    with _sizes_as_globals(target, sizes):
        name = getattr(target, "__name__", type(target).__name__)
        if inspect.isclass(target) and hasattr(target, "save_for_backward"):
            name, target = f"{name}.apply", _applied(target)
        worked = False
        for attempt in _guessed_attempts(target, name, sizes, seed, failures, file):
            worked = True
            yield attempt
        if (
            not worked
            and hasattr(target, "__name__")
            and not any("is not installed" in one.error for one in failures[-1:])
        ):
            for calls in (_repaired_calls(target, sizes), captured_calls(target, sizes, file, _model_calls)):
                yield from _kept_attempts(calls, target, sizes, seed, failures, file)


def _guessed_attempts(
    target: Any, name: str, sizes: Sizes, seed: int, failures: list[CallFailure], file: str
) -> Iterator[Attempt]:
    if not inspect.isclass(target):
        for thorough in (False, True):
            yield from _call_attempts(target, name, {}, {}, sizes, seed, failures, file, thorough)
        return
    worked, end = False, time.process_time() + _MAX_SECONDS
    # groups of channels may need more heads, and fused kernels widths that are a multiple of 8
    both = sizes, dataclasses.replace(sizes, heads=8, d_head=2 * sizes.d_head)
    for each, thorough in itertools.product(both, (False, True)):
        before = len(failures)
        for arguments in _unique(constructor_attempts(target, each)):
            try:
                made, ops, buffers = instantiate(target, arguments, seed)
            except (Exception, SystemExit) as error:
                failures.append(failure(error, f"{_created(target, arguments)}{_forward_text(target)}", file))
                continue
            text = _created(target, arguments)
            for attempt in _call_attempts(made, text, ops, buffers, each, seed, failures, file, thorough):
                worked = True
                attempt.guessed = any(isinstance(v, ConfigGuess) and v.guesses for v in arguments.values())
                yield attempt
            if (len(failures) > before + _MAX_FAILURES or time.process_time() > end) and not worked:
                break
        if (worked and thorough) or (time.process_time() > end and not worked):
            return


def _repaired_calls(target: Any, sizes: Sizes) -> Iterator[CapturedCall]:
    """Yield the calls that a search finds, from the most likely one and what its errors propose."""
    function = _call_method(target) if inspect.isclass(target) else target
    form = _Form(Layout("bt", sizes.d_model), sizes)
    roles = roles_of(signature_of(function))
    start = start_arguments(function, roles, sizes, lambda name, role: _required(name, role, form))
    created = next(constructor_attempts(target, sizes)) if inspect.isclass(target) else {}
    objects: dict[str, Any] = {}

    def call(own: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        key = repr(own)
        if inspect.isclass(target) and key not in objects:
            objects.clear()
            objects[key] = instantiate(target, own, 0)[0]
        return objects.get(key, target)(**arguments)

    return repaired_calls(target, start, created, sizes, call)


def _kept_attempts(
    calls: Iterator[CapturedCall], target: Any, sizes: Sizes, seed: int, failures: list[CallFailure], file: str
) -> Iterator[Attempt]:
    """Yield calls that are kept with their arguments, with other numbers in their arrays."""
    for call in calls:
        function = target if not inspect.isclass(target) else _call_method(target)
        parameters = [p for p in signature_of(function) if p.name in call.arguments]
        roles = roles_of([p.replace(default=p.empty) for p in parameters])
        arrays = {n: v for n, v in call.arguments.items() if roles.get(n) in _ARRAY_ROLES and is_array(v)}
        inputs = {n: seeded_array(n, tuple(v.shape), seed) for n, v in arrays.items()}
        if not inputs:
            continue
        constants = {n: v for n, v in call.arguments.items() if n not in inputs}
        library = "numpy" if any(isinstance(v, np.ndarray) for v in arrays.values()) else "torch"
        made, ops, buffers, text = target, dict[int, list[Op]](), dict[str, Any](), str(target.__name__)
        try:
            if inspect.isclass(target):
                made, ops, buffers = instantiate(target, call.created, seed)
                text = _created(target, call.created)
            shown = {n: _array_name(roles[n]) for n in inputs} | {n: _short(v) for n, v in constants.items()}
            text = f"{text}({_shown(shown)})" + (f" as in {call.caller}" if call.caller else "")
            subject = RepeatedCall(
                functools.partial(_call_by_name, made), inputs, library, {}, buffers, ops, constants, text, made
            )
            _filled(subject, made, seed)
        except Exception as error:
            failures.append(failure(error, text, file))
            continue
        masks = {n: r for n, r in roles.items() if r in ("mask", "padding") and n not in inputs}
        yield Attempt(subject, {n: roles[n] for n in inputs}, masks, [], made, parameters, sizes, None, call.guessed)


def _filled(subject: RepeatedCall, made: Any, seed: int) -> list[Array]:
    """Fill the parameters of a module, after a first call that creates lazy ones, and return the outputs."""
    outputs = subject.plain()
    if not is_module(made):
        return outputs
    fill_parameters(made, seed)
    subject.parameters |= dict(made.named_parameters())
    return subject.plain()


def _call_by_name(made: Any, values: Mapping[str, Any]) -> Any:
    return made(**values)


def _call_method(cls: type) -> Any:
    return next((vars(b)[n] for b in cls.__mro__ for n in ("forward", "__call__", "call") if n in vars(b)), None)


def _model_calls(made: Any, sizes: Sizes) -> Iterator[Callable[[], Any]]:
    """Yield calls of a model or layer: with token ids, pictures, or arrays of tokens."""
    import torch

    parameters = signature_of(made.forward if hasattr(made, "forward") else made)
    roles = roles_of(parameters)
    required = [p.name for p in parameters if p.default is p.empty] or [p.name for p in parameters[:1]]
    own = dict(made.named_parameters()) if is_module(made) else {}
    batch, time, side = sizes.batch, sizes.time, 8 * sizes.side
    ids = torch.arange(batch * time).reshape(batch, time) % 7 + 1
    kinds = [torch.ones(batch, time, width) for width in _widths(own, sizes)[:3]]
    kinds = [ids, *kinds, torch.ones(batch, sizes.d_model), ids[:, 0], torch.ones(batch, 3, side, side)]
    form = _Form(Layout("bt", sizes.d_model), sizes)
    guessed = ("", *_ARRAY_ROLES, *ROTARY_ROLES)  # rotary tables come from the model, or it is the wrong one
    unknown = [n for n in required if n == required[0] or roles[n] in ("", *_ARRAY_ROLES)]
    known = {n: _required(n, roles[n], form) for n in required if roles[n] not in guessed and n not in unknown}
    for values in itertools.product(kinds, repeat=min(len(unknown), 3)):
        given = dict(zip(unknown, values, strict=False))
        yield functools.partial(made, **{**dict.fromkeys(required), **known, **given})


def _applied(cls: Any) -> Callable[..., Any]:
    """Return the function of a `torch.autograd.Function`: its forward pass, without the context."""
    parameters = signature_of(cls.forward)[1:]

    @functools.wraps(cls.forward)
    def apply(**given: Any) -> Any:
        return cls.apply(*(given[p.name] for p in parameters if p.name in given))

    apply.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return apply


_MAX_FAILURES, _MAX_MISSING, _MAX_SECONDS = 1500, 3, 4.0
"""Failed calls of one size, calls of one object that lack a package, and CPU seconds, after which the search ends."""


def _created(cls: type, arguments: Mapping[str, Any]) -> str:
    """Return the expression that creates an object."""
    return f"{cls.__name__}({', '.join(f'{name}={_short(value)}' for name, value in arguments.items())})"


@contextlib.contextmanager
def _sizes_as_globals(target: Any, sizes: Sizes) -> Iterator[None]:
    """Give numbers that a script keeps in global names of sizes (d_k, n_heads) the sizes of the call."""
    members = vars(target).values() if inspect.isclass(target) else [target]
    functions = [member for member in members if inspect.isfunction(member)]
    scope = functions[0].__globals__ if functions else {}
    before = {
        name: value for name, value in scope.items()
        if type(value) is int and role_of(name, True) in ("d_model", "heads", "d_head") and len(name) > 1
    }  # fmt: skip
    scope.update({name: sizes.constructor_value(role_of(name, True)) for name in before})
    try:
        yield
    finally:
        scope.update(before)


def _unique(items: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    for item in items:
        key = repr(sorted((k, _short(v), getattr(v, "_guess", None)) for k, v in item.items()))
        if key not in seen:
            seen.add(key)
            yield item


def _short(value: Any) -> str:
    if isinstance(value, ConfigGuess):
        return repr(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f for f in dataclasses.fields(value) if f.init and f.default_factory is dataclasses.MISSING]
        shown = {
            f.name: repr(getattr(value, f.name)) for f in fields if repr(getattr(value, f.name)) != repr(f.default)
        }
        return f"{type(value).__name__}({', '.join(f'{name}={text}' for name, text in shown.items())})"
    if type(value).__name__ == "Linear":
        return f"nn.Linear({value.in_features}, {value.out_features}, bias=False)"
    if isinstance(value, np.ndarray):
        return f"np.ones({value.shape})"
    return repr(value) if len(repr(value)) < 40 else f"{type(value).__name__}(...)"


def _forward_text(cls: type) -> str:
    """Return the arguments of an object's call, for a class that could not be created."""
    function = _call_method(cls)
    parameters = [] if function is None else signature_of(function)
    roles = roles_of(parameters)
    return f"({_shown({p.name: _array_name(roles[p.name]) for p in parameters if p.default is p.empty})})"


def _array_name(role: str) -> str:
    """Return the array in `--call` that has a role."""
    return next((short for short, known in CALL_NAMES.items() if known == role), "None")


def _shown(arguments: Mapping[str, str]) -> str:
    """Return arguments as they are written in `--call`: without their name where that is the array's, at first."""
    named = len(list(itertools.takewhile(lambda item: item[0] == item[1], arguments.items())))
    return ", ".join(name if i < named else f"{name}={value}" for i, (name, value) in enumerate(arguments.items()))


@dataclass(frozen=True)
class _Form:
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


def _call_attempts(
    made: Any, text: str, ops: dict[int, list[Op]], buffers: dict[str, Any], sizes: Sizes, seed: int,
    failures: list[CallFailure], file: str, thorough: bool,
) -> Iterator[Attempt]:  # fmt: skip
    function = made.forward if is_module(made) else made
    if not callable(function) or not signature_of(function):
        function = getattr(made, "forward", None) or getattr(made, "call", None) or made
    parameters, packed = _unpacked(function, signature_of(function))
    roles = roles_of(parameters)
    worked, before = False, len(failures)
    for form in _forms(made, function, parameters, roles, sizes, buffers):
        if thorough == (form.mask is None and not form.unknown):
            continue  # all objects are called without masks and guessed arrays before one is called with them
        missing = sum("is not installed" in one.error for one in failures[before:])
        if not worked and (missing == _MAX_MISSING or len(failures) > before + _MAX_FAILURES):
            return
        subject = _subject(made, function, text, parameters, roles, form, seed, packed)
        if subject is None or (worked and (form.layout.one_query or form.unknown)):
            continue  # guesses only where nothing better runs
        subject.buffer_ops, subject.buffers = ops, buffers
        try:
            outputs = _filled(subject, made, seed)
            if form.mask is not None and not all(np.isfinite(array).all() for array in outputs):
                raise ValueError("its output is not finite: this mask hides everything")
        except Exception as error:
            failures.append(failure(error, subject.text, file))
            continue
        worked = True
        masks = {n: r for n, r in roles.items() if r in ("mask", "padding") and n not in subject.inputs}
        flags = [n for n, r in roles.items() if r == "causal"]
        input_roles = {n: roles.get(n, "") for n in subject.inputs}
        yield Attempt(subject, input_roles, masks, flags, made, parameters, form.sizes, form.layout)


def _unpacked(
    function: Any, parameters: list[inspect.Parameter]
) -> tuple[list[inspect.Parameter], dict[str, list[str]]]:
    """Return the parameters, with the parts of those that the code unpacks in one line, and the names of the parts."""
    packed: dict[str, list[str]] = {}
    flat: list[inspect.Parameter] = []
    for parameter in parameters:
        unpacking = re.search(rf"^\s*\(?(\w+(?:, *\w+)+)\)? = {parameter.name}(?: *#.*)?$", source_of(function), re.M)
        items = re.findall(rf"^\s*(\w+) = .*\b{parameter.name}\[(\d)\]", source_of(function), re.M)
        listed = [number for _, number in items] in (["0", "1"], ["0", "1", "2"])  # one by one
        if (unpacking is None and not listed) or parameter.default is not parameter.empty:
            flat.append(parameter)
            continue
        packed[parameter.name] = re.findall(r"\w+", unpacking[1]) if unpacking else [name for name, _ in items]
        flat += [inspect.Parameter(name, parameter.POSITIONAL_OR_KEYWORD) for name in packed[parameter.name]]
    return flat, packed


def _forms(
    made: Any, function: Any, parameters: list[inspect.Parameter], roles: Mapping[str, str], sizes: Sizes,
    buffers: Mapping[str, Any],
) -> Iterator[_Form]:  # fmt: skip
    """Yield ways to fill the arguments, most likely first: masks that hide nothing come after no mask at all."""
    required = {roles.get(p.name, "") for p in parameters if p.default is p.empty}
    own = dict(made.named_parameters()) if is_module(made) else {}
    flat = bool(own) or bool({"heads", "x", "w_q", "w_qkv"} & set(roles.values()))
    widths = _widths(own, sizes)
    if "qkv" in roles:
        widths = [3 * sizes.d_model, *widths]
    convolutional = any(p.dim() > 2 for p in own.values() if "Uninitialized" not in type(p).__name__)
    several = [sizes, dataclasses.replace(sizes, time=sizes.length)]
    several += [dataclasses.replace(sizes, time=each, side=each) for each in _lengths(own, buffers, sizes)]
    if {"h", "w"} <= {name.lower() for name in roles}:  # a feature map as tokens, after a token for its class
        several.append(dataclasses.replace(sizes, time=sizes.side**2 + 1))
    shapes = [(each, layout) for each in several for layout in declared_layouts(function, roles, each, widths)]
    shapes += [(each, layout) for each in several for layout in layouts(each, flat, widths, convolutional)
               if "heads" not in roles.values() or "h" not in layout.axes]  # fmt: skip
    shapes = list(dict.fromkeys(shapes))
    if {"key", "source"} & set(roles.values()):
        shapes += [(sizes, Layout(axes, width, keys)) for width in dict.fromkeys(widths) for axes, keys in ONE_QUERY]
    masks = MASK_FORMS if {"mask", "padding"} & set(roles.values()) else MASK_FORMS[:1]
    rotary = ROTARY_FORMS if required & set(ROTARY_ROLES) else (0,)
    weights = (False, True) if any(role.startswith("w_") for role in required) else (False,)
    optional = {roles[p.name] for p in parameters if p.default is None}
    sources = (False, True) if optional & {"source", "position_ids", *ROTARY_ROLES} else (False,)
    unknown = ("", "tokens", "heads") if "" in required else ("",)
    outer = itertools.product(unknown, masks, sources, shapes, _libraries(function, made), rotary, weights)
    for array, mask, source, (each, layout), library, number, grouped in outer:
        yield _Form(layout, each, library, mask, number, grouped, source, array)


def _lengths(parameters: Mapping[str, Any], buffers: Mapping[str, Any], sizes: Sizes) -> list[int]:
    """Return lengths that tables of a module may be made for: masks, positions; three at most."""
    weights = [p for p in parameters.values() if "Uninitialized" not in type(p).__name__]
    known = {sizes.time, sizes.length, sizes.d_model, sizes.d_head, sizes.heads, sizes.batch}
    known |= {int(n) for p in weights if p.dim() == 2 for n in p.shape}
    found = [int(n) for table in (*buffers.values(), *weights) if table.dim() > 1 for n in table.shape[-2:]]
    return [n for n in dict.fromkeys(found) if 3 < n <= 64 and n not in known][:3]


def _widths(parameters: Mapping[str, Any], sizes: Sizes) -> list[int]:
    """Return the widths that an input may have: the model's, then input widths of the layers."""
    parameters = {name: p for name, p in parameters.items() if "Uninitialized" not in type(p).__name__}  # lazy layers
    found = [int(p.shape[1]) for p in parameters.values() if p.dim() >= 2]
    found += [int(p.shape[0]) for p in parameters.values() if p.dim() == 2]
    known = [sizes.d_model] if not found or sizes.d_model in found else []
    return [*known, *filter(None, dict.fromkeys(found)), *([] if known else [sizes.d_model])]


def _subject(
    made: Any, function: Any, text: str, parameters: list[inspect.Parameter], roles: dict[str, str], form: _Form,
    seed: int, packed: Mapping[str, list[str]],
) -> RepeatedCall | None:  # fmt: skip
    """Return the subject for one form: arrays by role, other required arguments by role, or None."""
    inputs: dict[str, Array] = {}
    constants: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    for parameter in parameters:
        role, required = roles.get(parameter.name, ""), parameter.default is parameter.empty
        if (role in _ARRAY_ROLES and (required or form.with_optional or role != "source")) or (
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
            constants[parameter.name] = _required(parameter.name, role, form)
    if not inputs:
        return None
    if form.library == "torch":
        import torch

        weights = {name: torch.from_numpy(value) for name, value in weights.items()}
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    target = made if is_module(made) else function

    def run(values: Mapping[str, Any]) -> Any:
        bound = _grouped({**weights, **values})
        bound |= _in_layout(form.layout, {name: bound[name] for name in inputs}, roles)
        bound |= {name: tuple(bound.pop(part) for part in parts) for name, parts in packed.items()}
        result = target(*(bound[name] for name in names), **{k: v for k, v in bound.items() if k not in names})
        return _from_layout(form.layout, result)

    shown = {name: _array_name(roles.get(name, "") or "source") for name in inputs}
    shown |= {name: _short(value) for name, value in constants.items() if not hasattr(value, "dim")}
    for name, parts in packed.items():
        shown[name] = f"({', '.join(shown.pop(part, '...') for part in parts)})"
    call = f"{text}({_shown(shown)})"
    return RepeatedCall(run, inputs, form.library, dict(weights), constants=constants, text=call, owner=made)


def _is_off(parameter: inspect.Parameter, function: Any) -> bool:
    """Return whether the default of a scale is not to scale: 1, or None where the code asks for it."""
    asks = rf"(?m)^\s*if {parameter.name}(?: is not None)?:"
    return parameter.default == 1 or (parameter.default is None and bool(re.search(asks, source_of(function))))


def _weight(name: str, role: str, form: _Form, seed: int) -> dict[str, Array]:
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


def _grouped(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with names such as "c.w" and "c.b" as dictionaries under their first part."""
    grouped: dict[str, Any] = {}
    for name, value in values.items():
        first, dot, last = name.partition(".")
        if dot:
            grouped.setdefault(first, {})[last] = value
        else:
            grouped[name] = value
    return grouped


def _in_layout(layout: Layout, arrays: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """Return arrays as the code expects them: channels after the batch, or keys transposed."""
    if layout.channels_first:
        return {name: _moved(array, -1, 1) for name, array in arrays.items()}
    keys = [name for name in arrays if layout.transposed_keys and roles[name] == "key"]
    return {**arrays, **{name: _moved(arrays[name], -1, -2) for name in keys}}


def _from_layout(layout: Layout, result: Any) -> Any:
    """Return a result with the channels last."""
    if not layout.channels_first:
        return result
    several = result if isinstance(result, tuple | list) else [result]
    return [_moved(each, 1, -1) if getattr(each, "ndim", 0) > 2 else each for each in several]


def _moved(array: Any, source: int, target: int) -> Any:
    if isinstance(array, np.ndarray):
        axes = list(range(array.ndim))
        axes.insert(target % array.ndim, axes.pop(source))
        return array.transpose(axes)
    return array.movedim(source, target).contiguous()


def _required(name: str, role: str, form: _Form) -> Any:
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


def _libraries(function: Any, made: Any) -> tuple[str, ...]:
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
    lengths = [sizes.time, sizes.length, *_lengths(own, buffers, sizes)]
    shapes = [
        (each, layout) for each in (dataclasses.replace(sizes, time=time) for time in lengths)
        for layout in layouts(each, bool(own) or "x" in arrays, widths)
    ]  # fmt: skip
    for library, (each, layout) in itertools.product(libraries, shapes):
        inputs = {name: seeded_array(role, layout.shape(each, role), seed) for name, role in arrays.items()}

        def run(values: Mapping[str, Any], layout: Layout = layout) -> Any:
            given = _in_layout(layout, {name: values[name] for name in arrays}, arrays)
            return _from_layout(layout, eval(code, {**names, "mask": None, **values, **given}))

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
        yield Attempt(subject, dict(arrays), masks, [], made[0] if made else None, [], each, layout)


def _call_constants(sizes: Sizes) -> dict[str, Any]:
    import math

    names: dict[str, Any] = {
        "np": np, "math": math, "heads": sizes.heads, "n_heads": sizes.heads, "num_heads": sizes.heads,
        "d_model": sizes.d_model, "d_k": sizes.d_head, "d_head": sizes.d_head, "batch": sizes.batch, "time": sizes.time,
        "cache": None, "w_q": None, "settings": lambda **given: ConfigGuess(sizes, given),
    }  # fmt: skip
    module = _module_class()
    if module is not None:
        import torch

        names |= {"torch": torch, "nn": torch.nn}
    return names


def _create_objects(
    tree: ast.Expression, names: Mapping[str, Any], seed: int
) -> tuple[ast.Expression, list[Any], dict[int, list[Op]], dict[str, Any]]:
    """Replace each call of a class whose arguments use no arrays by the object, created once."""
    made: list[Any] = []
    ops: dict[int, list[Op]] = {}
    buffers: dict[str, Any] = {}

    def evaluate(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<call>", "eval"), dict(names))

    class Creator(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            function = None
            with contextlib.suppress(NameError):
                function = None if used & {*CALL_NAMES, "mask"} else evaluate(node.func)
            if not inspect.isclass(function) or not _has_call(function):
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


def _has_call(cls: type) -> bool:
    return any("__call__" in vars(base) or "forward" in vars(base) for base in cls.__mro__)
