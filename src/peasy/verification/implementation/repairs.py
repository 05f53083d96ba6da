"""Search for the arguments of a call, driven by its errors: each proposes other values of one argument at a time."""

import ast
import dataclasses
import functools
import heapq
import inspect
import itertools
import linecache
import math
import re
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peasy.verification.implementation.arguments import (
    ROTARY_FORMS,
    ROTARY_ROLES,
    SIZES,
    ConfigGuess,
    Sizes,
    constructor_attempts,
    objects_of,
    roles_of,
    rotary_tables,
    seeded_array,
    signature_of,
    source_of,
)
from peasy.verification.implementation.call_text import (
    CallFailure,
    call_method,
    call_of,
    created_text,
    failure,
    short_text,
    shown_text,
    user_frames,
)
from peasy.verification.implementation.captured import CapturedCall, project_class
from peasy.verification.implementation.creation import instantiate, is_module
from peasy.verification.implementation.forms import ARRAY_ROLES, Form, required_value
from peasy.verification.implementation.layouts import Layout
from peasy.verification.implementation.names import role_of
from peasy.verification.implementation.repeated_call import quiet

_MAX_TRIALS, _MAX_REPAIRS, _MAX_CALLS, _MAX_NUMBERS, _MAX_OBJECTS = 400, 6, 4, 1 << 17, 12
"""Calls that are tried, the most repairs of one call, the calls that are returned, numbers of one array, and trials to
create an object of the project."""
_CREATED = "constructor "
"""Prefix of constructor arguments, which are repaired together with those of the call."""


@dataclass(frozen=True, repr=False)
class Shape:
    """Array that is not made yet: its axes, and what it holds."""

    axes: tuple[int, ...]
    kind: str = "float"

    def __repr__(self) -> str:
        if self.axes == (SIZES[0].batch, SIZES[0].time, SIZES[0].d_model):
            return "x"
        kinds = {"bool": ", dtype=bool", "ids": ", dtype=int"}  # torch takes the types of Python
        return f"torch.ones({', '.join(map(str, self.axes))}{kinds.get(self.kind, '')})"

    def make(self, name: str) -> Any:
        """Return the array as a tensor, or as it is."""
        import torch

        if self.kind == "bool":
            return torch.ones(self.axes, dtype=torch.bool)
        if self.kind == "ids":
            return torch.arange(int(torch.Size(self.axes).numel())).reshape(self.axes) % 7 + 1
        if self.kind == "zeros":
            return torch.zeros(self.axes)
        array = seeded_array(name, self.axes, 0)
        return array if self.kind == "numpy" else torch.from_numpy(array)


def repaired_calls(target: Any, sizes: Sizes, failures: list[CallFailure], file: str) -> Iterator[CapturedCall]:
    """Yield calls of a target that run, from the most likely ones and what their errors propose.

    If none does, the one that came furthest is added to the `failures`.
    """
    from torch import nn

    function = call_method(target) if inspect.isclass(target) else target
    created = next(constructor_attempts(target, sizes)) if inspect.isclass(target) else {}
    objects: dict[str, Any] = {}

    def call(key: str, own: Mapping[str, object], arguments: Mapping[str, object]) -> None:
        if inspect.isclass(target) and key not in objects:
            objects.clear()
            objects[key] = instantiate(target, own, 0)[0]
        made = objects.get(key, target)
        before = _attributes(made)
        try:
            (made if is_module(made) else call_of(made))(**arguments)
        finally:
            if [*map(id, before)] != [*map(id, _attributes(made))]:
                objects.clear()  # it remembers this call

    first = {_CREATED + name: value for name, value in created.items()}
    seen, number, found = dict[str, object](), itertools.count(1), 0
    queue: list[tuple[tuple[float, ...], int, dict[str, Any], tuple[str, ...]]]
    queue = [((-math.inf,), next(number), {**first, **start}, ()) for start in _start_arguments(function, sizes)]
    optional = {p.name for p in signature_of(function) if p.default is None}
    furthest, closest = (-1.0, 0.0), list[CallFailure]()
    for _ in range(_MAX_TRIALS):
        if not queue or found == _MAX_CALLS:
            break
        _, _, values, repaired = heapq.heappop(queue)
        arguments = {n: v.make(n) if isinstance(v, Shape) else v for n, v in values.items()}
        own = {n.removeprefix(_CREATED): v for n, v in arguments.items() if n.startswith(_CREATED)}
        given = {
            n: v for n, v in arguments.items() if not n.startswith(_CREATED) and (n not in optional or v is not None)
        }
        try:
            with quiet():
                call(_key({n: v for n, v in values.items() if n.startswith(_CREATED)}), own, given)
        except (Exception, SystemExit) as error:
            reached = _progress(error)
            if reached > furthest:
                shown = {n: repr(values[n]) if isinstance(values[n], Shape) else short_text(given[n]) for n in given}
                text = created_text(target, own) if inspect.isclass(target) else target.__name__
                furthest, closest = reached, [failure(error, f"{text}({shown_text(shown)})", file)]
            if len({*repaired}) >= _MAX_REPAIRS:
                continue
            for changes in _repairs(error, target, values, sizes):
                other = {**values, **changes}
                large = any(isinstance(v, Shape) and math.prod(v.axes) > _MAX_NUMBERS for v in changes.values())
                if not large and (key := _key(other)) not in seen:
                    seen[key] = other  # kept, so that no other value gets its id
                    # what came further is repaired first; at the same place, what was repaired less
                    rank = (*(-line for line in reached), len(repaired) + len({*changes} & {*repaired}))
                    heapq.heappush(queue, (rank, next(number), other, (*repaired, *changes)))
            continue
        found += 1
        unknown = [n for n in repaired if not role_of(n.removeprefix(_CREATED), n.startswith(_CREATED))]
        chosen = [n for n in unknown if isinstance(values[n], bool | float | str)]
        settings = [n for n, v in values.items() if isinstance(v, ConfigGuess) and v.guesses]
        invented = ", ".join(n.removeprefix(_CREATED) for n in unknown if isinstance(values[n], nn.Module))
        yield CapturedCall("", own, given, bool(chosen or settings), invented)
    failures += closest if failures and not found else []


def _attributes(made: Any) -> list[Any]:
    """Return the values of an object's attributes, those of its modules and its buffers, too."""
    parts, buffers = (made.modules(), made.buffers()) if is_module(made) else ([made], ())
    return [*buffers, *(value for each in parts for value in getattr(each, "__dict__", {}).values())]


def _key(value: object) -> str:
    """Return a text that tells different arguments apart; arrays by their identity, as printing them takes long."""
    if isinstance(value, Mapping):
        return f"{getattr(value, '_guess', '')}{{{', '.join(f'{name}: {_key(each)}' for name, each in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(_key, value))})"
    if isinstance(value, Shape):
        return f"{value.kind} {value.axes}"
    return repr(value) if isinstance(value, int | float | str | type | None) else f"{type(value)} {id(value)}"


@functools.cache
def _statements(file: str) -> list[tuple[int, int, str]]:
    """Return the simple statements of a file: first line, last line, source."""
    text = "".join(linecache.getlines(file))
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    return [(node.lineno, node.end_lineno or node.lineno, ast.unparse(node)) for node in nodes]


def _statement(frame: traceback.FrameSummary) -> str:
    """Return the whole statement of a frame."""
    line, found = frame.lineno or 0, _statements(frame.filename)
    return next((text for first, last, text in found if first <= line <= last), frame.line or "")


def _progress(error: BaseException) -> tuple[float, float]:
    """Return how far a call came: past the constructor, and the line of the call's own method."""
    frames = user_frames(error)
    own = [frame for frame in frames if frame.name != "__init__"]
    made = bool(own) and frames[0].name != "__init__"
    first = own[0] if made else next(iter(frames), None)
    return float(made), float(first.lineno or 0) if first else 0.0


def _repairs(
    error: BaseException, target: object, values: Mapping[str, object], sizes: Sizes
) -> Iterator[dict[str, Any]]:
    """Yield changes that an error proposes: of one argument that the failing line depends on, or of equal arrays."""
    text = str(error)
    numbers = list(dict.fromkeys(int(n) for n in re.findall(r"(?<![\w.])\d{1,4}(?![\w.])", text.replace("x", " "))))
    blamed = _blamed(error, target, values)
    arrays = {n: v for n, v in values.items() if isinstance(v, Shape)}  # code for one sequence
    yield {
        n: dataclasses.replace(v, axes=tuple(1 if a == sizes.batch else a for a in v.axes)) for n, v in arrays.items()
    }
    nothing = [name for name in blamed if values[name] is None and "NoneType" in text]
    for name in nothing or blamed:
        same = [n for n, v in values.items() if isinstance(v, Shape) and _key(v) == _key(values[name])]
        for value in (*_wanted_objects(error, name, target, sizes),
                      *_other_settings(error, values[name], sizes),
                      *_other_values(name, values[name], text, numbers, sizes)):  # fmt: skip
            if len(same) > 1:
                yield dict.fromkeys(same, value)
            yield {name: value}


def _wanted_objects(error: BaseException, name: str, target: Any, sizes: Sizes) -> Iterator[Any]:
    """Yield objects of the project's classes that an annotation or the failing line asks for."""
    plain, constructor = name.removeprefix(_CREATED), name.startswith(_CREATED)
    function = target if not inspect.isclass(target) else target.__init__ if constructor else call_method(target)
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    asked = re.findall(rf"isinstance\({plain}, *(\w+)\)", " ".join(map(_statement, user_frames(error)[-1:])))
    hints = [str(p.annotation) for p in signature_of(function) if p.name == plain]
    for word in dict.fromkeys([*asked, *re.findall(r"\w+", " ".join(hints))]):
        wanted = scope.get(word) or project_class(word, Path(inspect.getsourcefile(target) or "."))
        if inspect.isclass(wanted) and wanted.__module__.partition(".")[0] == target.__module__.partition(".")[0]:
            yield from objects_of(wanted, sizes, _MAX_OBJECTS)


def _other_settings(error: BaseException, value: object, sizes: Sizes) -> Iterator[Any]:
    """Yield a configuration with another value of a guessed setting, those of the failing lines and strings first."""
    if not isinstance(value, ConfigGuess):
        return
    failing = f"{error} {' '.join(map(_statement, user_frames(error)))}"
    words = [word for word in re.findall(r"[\"'](\w+)[\"']", str(error)) if word not in value]
    yield value.changed({})
    for name in sorted(value.guesses, key=lambda name: name not in failing):
        yield from (value.changed({name: other}) for other in (*words, None, True, 1, sizes.heads, sizes.d_head))


def _blamed(error: BaseException, target: object, values: Mapping[str, object]) -> list[str]:
    """Return the arguments that the failing line depends on, nearest first; all of them if none is found."""
    frames = user_frames(error)
    depends = _dependencies(target)
    names: list[str] = re.findall(r"'(\w+)'", str(error)) if "argument" in str(error) else []
    for frame in reversed(frames):
        names += re.findall(r"(?:self\.)?[^\W\d]\w*", _statement(frame))
    known: dict[str, None] = {}
    for _ in range(4):
        known |= dict.fromkeys(each for name in names for each in (name, _CREATED + name) if each in values)
        names = list(dict.fromkeys(each for name in names for each in depends.get(name, ())))
    return list(known) or list(values)


@functools.cache
def _dependencies(target: object) -> dict[str, tuple[str, ...]]:
    """Return for each name that a function or a class assigns the names in the assigned expressions."""
    found: dict[str, dict[str, None]] = {}
    try:
        tree = ast.parse(textwrap.dedent(source_of(target)))
    except SyntaxError:
        return {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For) and (
            value := node.iter if isinstance(node, ast.For) else node.value
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            used = re.findall(r"(?:self\.)?[^\W\d]\w*", ast.unparse(value))
            for each in re.findall(r"(?:self\.)?[^\W\d]\w*", " ".join(map(ast.unparse, targets))):
                found.setdefault(each, {}).update(dict.fromkeys(used))
    return {name: tuple(used) for name, used in found.items()}


def _other_values(name: str, value: object, text: str, numbers: list[int], sizes: Sizes) -> Iterator[object]:
    """Yield other values of one argument: of its kind, by the error's text and the numbers in it."""
    constructor, role = name.startswith(_CREATED), role_of(name.removeprefix(_CREATED), name.startswith(_CREATED))
    if "ndarray" in text:
        yield Shape((sizes.d_model, sizes.d_model), "numpy")
    if isinstance(value, Shape):
        yield from _other_shapes(value, text, numbers, sizes)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float | tuple) and constructor | (role != "causal"):
        yield from _other_numbers(value, text, numbers, sizes)
    elif value is None or isinstance(value, str):
        yield from re.findall(r"[\"'](\w+)[\"']", text)  # as in: expected one of "mean", "sum"
    if value is None or callable(value):
        yield from _instead_of_nothing(constructor, role, text, sizes)


def _other_shapes(shape: Shape, text: str, numbers: list[int], sizes: Sizes) -> Iterator[Shape]:
    axes, replace = shape.axes, functools.partial(dataclasses.replace, shape)
    expected = re.search(r"\(expected (?:at least )?(\d)|(\d)-?D .*expected|must be (\d)|Expected.* (\d)-?D", text)
    count = int(next(filter(None, expected.groups()))) if expected else 0
    batch, tokens, width = sizes.batch, sizes.time, axes[-1] if axes else sizes.d_model
    by_count: dict[int, list[tuple[int, ...]]] = {
        1: [(batch,), (tokens,), (width,)], 2: [(batch, width), (tokens, width), (batch, tokens)],
        3: [(batch, tokens, width), (tokens, batch, width), (batch, width, tokens)],
        4: [(batch, sizes.heads, tokens, sizes.d_head), (batch, tokens, sizes.heads, sizes.d_head),
            (batch, width, sizes.side, sizes.side), (batch, sizes.side, sizes.side, width)],
        5: [(batch, 2, width, sizes.side, sizes.side), (batch, width, 2, sizes.side, sizes.side)],
    }  # fmt: skip
    if re.search(r"Long|scalar type|indices|integer|\bInt\b", text) and shape.kind == "float":
        yield Shape(axes[:-1] or axes, "ids")
        yield replace(kind="ids")
    if "Bool" in text or "bool" in text:
        yield replace(kind="bool")
    if "Float" in text and shape.kind != "float":
        yield replace(kind="zeros")
    named = re.findall(r"[\[(](\d{1,3}(?:, \d{1,3})+)[\])]", text)  # as in: expected hidden size (1, 2, 48), got ...
    yield from (replace(axes=tuple(map(int, each.split(", ")))) for each in named)
    yield from (replace(axes=each) for each in by_count.get(count, ()))
    for number in [n for n in numbers if 0 < n <= 512 and n not in axes[-1:]][:5]:
        yield replace(axes=(*axes[:-1], number))
        if len(axes) > 2:
            yield replace(axes=(*axes[:-2], number, axes[-1]))
            yield replace(axes=(axes[0], number, *axes[2:]))
    for near in (len(axes) - 1, len(axes) + 1):
        yield from (replace(axes=each) for each in by_count.get(near, ()) if near != count)
    swapped = [(*axes[:-2], axes[-1], axes[-2]), (axes[1], axes[0], *axes[2:])] if len(axes) > 2 else []
    yield from (replace(axes=each) for each in (*swapped, (batch, tokens, tokens), (batch, 1, tokens, tokens)))


def _other_numbers(value: Any, text: str, numbers: list[int], sizes: Sizes) -> Iterator[object]:
    if isinstance(value, tuple):
        yield from (value * 2, value[:1] * 3, value[0], (sizes.side, sizes.side), (2, *value[1:]))
        return
    side = sizes.side if value > sizes.length else int(value)
    if re.search("subscript|iterable|tuple|len\\(\\)|unpack|list|pair", text):
        yield from ((side, side), (2, side, side), [side, side], [side], (int(value), int(value)))
    if re.search("callable|forward", text):
        yield from _instead_of_nothing(True, "", text, sizes)
    if re.search("no attribute", text):
        yield ConfigGuess(sizes, guess=True)
    yield from (n for n in numbers if 0 < n <= 512)
    yield from (sizes.d_model, sizes.d_head, sizes.heads, sizes.side, 2, 1, 3, sizes.side**2, 0, sizes.time, 32, None)


def _instead_of_nothing(constructor: bool, role: str, text: str, sizes: Sizes) -> Iterator[object]:
    """Yield values for an argument that was None: modules and classes if it is called, else numbers or arrays."""
    import torch
    from torch import nn

    batch, tokens, width = sizes.batch, sizes.time, sizes.d_model
    if "callable" in text or "subclass" in text or role in ("norm", "module", "dropout"):
        yield from [nn.Identity(), nn.Identity, nn.LayerNorm, nn.Linear(width, width), nn.LayerNorm(width)]
    if constructor:
        yield from (width, sizes.d_head, sizes.heads, sizes.side, (sizes.side, sizes.side), 1, True, 0.1, "", None)
        yield ConfigGuess(sizes, guess=True)
        return
    if "operand" in text or "not supported" in text:
        yield from (tokens, width, sizes.heads, 1)
    if role in ROTARY_ROLES:
        yield from (rotary_tables(sizes, tokens, form)[role] for form in ROTARY_FORMS)
    if role not in ("mask", "padding"):
        yield from (Shape((batch, tokens, width)), Shape((batch, sizes.heads, tokens, sizes.d_head)))
        yield from (Shape((batch, width)), Shape((tokens, width)), tokens, width, Shape((batch, tokens), "ids"))
    yield from (Shape(axes, kind) for kind in ("bool", "zeros") for axes in (
        (tokens, tokens), (batch, tokens), (batch, 1, tokens, tokens), (batch, tokens, tokens), (batch, 1, 1, tokens),
        (batch, sizes.heads, tokens, tokens)))  # fmt: skip
    yield from (Shape((tokens, sizes.d_head)), torch.full((batch,), tokens), sizes.heads, sizes.side, False, [])
    yield from itertools.chain.from_iterable(rotary_tables(sizes, tokens, form).values() for form in ROTARY_FORMS)


def _start_arguments(function: Callable[..., object], sizes: Sizes) -> list[dict[str, Any]]:
    """Return the first arguments of a call: arrays with and without heads, None, or what is required by name."""
    roles, form = roles_of(signature_of(function)), Form(Layout("bt", sizes.d_model), sizes)
    known = [
        p for p in signature_of(function) if roles[p.name] in ARRAY_ROLES or p.default is None or p.default is p.empty
    ]
    shapes = (sizes.batch, sizes.time, sizes.d_model), (sizes.batch, sizes.heads, sizes.time, sizes.d_head)
    others = {p.name: None if p.default is None else required_value(p.name, roles[p.name], form) for p in known
              if p.default is None or roles[p.name] not in ARRAY_ROLES}  # fmt: skip
    return [{p.name: others.get(p.name, Shape(axes)) for p in known} for axes in shapes]
