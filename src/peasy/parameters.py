"""Parameters of a command, read from its signature and docstring: what CLI flags and HTTP bodies are derived from."""

import ast
import collections.abc
import dataclasses
import functools
import inspect
import numbers
import operator
import pathlib
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping

from annotated_types import Ge, Gt, Le, Lt

from peasy.errors import InvalidInput, UsageError, with_checked_keywords

P = typing.ParamSpec("P")
T = typing.TypeVar("T")

REQUIRED = inspect.Parameter.empty
"""Default of a parameter that has none."""


@dataclasses.dataclass(frozen=True)
class CommandParameter:
    """Parameter of a command: annotation with its bounds, default (`REQUIRED` if none), and explanation."""

    name: str
    annotation: object
    default: object = REQUIRED
    help: str = ""


@functools.cache
def command_parameters(command: Callable[..., object], options: type | None = None) -> Mapping[str, CommandParameter]:
    """Return the parameters of a command by name; `options` is the dataclass whose fields its `**keywords` are.

    >>> def bake(pizza: str, *, minutes: typing.Annotated[int, Ge(1)] = 10) -> None:
    ...     '''Bake a pizza.
    ...
    ...     Args:
    ...         pizza: Kind of pizza.
    ...         minutes: Time in the oven,
    ...             at least 1.
    ...     '''
    >>> [(p.name, p.default, p.help) for p in command_parameters(bake).values() if p.default is not REQUIRED]
    [('minutes', 10, 'Time in the oven, at least 1.')]
    """
    explanations = _explanations(inspect.getdoc(command) or "")
    found = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            found[name] = CommandParameter(name, parameter.annotation, parameter.default, explanations.get(name, ""))
    return found if options is None else {**found, **field_parameters(options)}


@functools.cache
def field_parameters(options: type) -> Mapping[str, CommandParameter]:
    """Return the fields of a dataclass as parameters; the string below a field explains it."""
    assert dataclasses.is_dataclass(options)
    hints, explanations = typing.get_type_hints(options, include_extras=True), _attribute_docstrings(options)
    found = {}
    for field in dataclasses.fields(options):
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        default = REQUIRED if default is dataclasses.MISSING else default
        found[field.name] = CommandParameter(field.name, hints[field.name], default, explanations.get(field.name, ""))
    return found


def check_bounds(
    parameters: Mapping[str, CommandParameter], arguments: Mapping[str, object], label: Callable[[str], str] = str
) -> None:
    """Raise InvalidInput for the first argument outside the bounds in its annotation; `label` names it there.

    >>> check_bounds({"n": CommandParameter("n", typing.Annotated[int, Ge(1)])}, {"n": 0})
    Traceback (most recent call last):
    peasy.errors.InvalidInput: n is 0.
    """
    for name, value in arguments.items():
        parameter = parameters.get(name)
        if parameter is None or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        bounds = list(_bounds(parameter.annotation))
        if not all(holds(value, limit) for holds, _, limit in bounds):
            hint = f"{label(name)} must be {' and '.join(text.format(limit) for _, text, limit in bounds)}."
            raise InvalidInput(f"{label(name)} is {value}.", hint=hint)


class BoundedSettings:
    """Base class of settings: a dataclass whose numbers must lie within the bounds in their annotations."""

    def __post_init__(self) -> None:
        kind: type = type(self)
        check_bounds(_hinted_parameters(kind), vars(self))


@functools.cache
def _hinted_parameters(kind: type) -> Mapping[str, CommandParameter]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: CommandParameter(name, annotation) for name, annotation in hints.items()}


_BOUNDS: dict[type, tuple[Callable[[typing.Any, typing.Any], bool], str]] = {
    Ge: (operator.ge, "{} or more"),
    Gt: (operator.gt, "above {}"),
    Le: (operator.le, "{} or less"),
    Lt: (operator.lt, "below {}"),
}
"""Comparison of each kind of bound, and its description."""


def _bounds(annotation: object) -> Iterator[tuple[Callable[[typing.Any, typing.Any], bool], str, object]]:
    """Yield the bounds of a number as (comparison, description, limit), also where it may be None."""
    for bound in getattr(annotation, "__metadata__", ()):
        if type(bound) in _BOUNDS:
            yield *_BOUNDS[type(bound)], dataclasses.astuple(bound)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for kind in typing.get_args(annotation):
            yield from _bounds(kind)


def _explanations(docstring: str) -> dict[str, str]:
    """Return the entries of the `Args:` section of a docstring, each on one line."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", docstring, re.MULTILINE)
    if section is None:
        return {}
    entries = re.findall(r"^(\w+): (.*(?:\n[ ]+.*)*)", textwrap.dedent(section[1]), re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _attribute_docstrings(kind: type) -> dict[str, str]:
    """Return the strings that stand below the fields of a class and of its base classes."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                text = below.value.value if isinstance(below.value, ast.Constant) else ""
                found[field.target.id] = " ".join(str(text).split())
    return found


def with_checked_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with missing, unknown and wrongly typed arguments answered in a sentence."""
    named = with_checked_keywords(function)
    if inspect.isclass(function):
        return named
    signature = inspect.signature(function)
    required = [
        name for name, parameter in signature.parameters.items() if parameter.default is REQUIRED and parameter.kind < 4
    ]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        args, kwargs = tuple(map(_plain, args)), {name: _plain(value) for name, value in kwargs.items()}  # type: ignore[assignment]
        try:
            given = signature.bind_partial(*args).arguments
        except TypeError:
            names = ", ".join(name for name, parameter in signature.parameters.items() if parameter.kind < 2)
            rule = f"without a name only {names}" if names else "no arguments without a name"
            raise UsageError(f"{function.__name__} takes {rule}; {len(args)} were given.") from None
        if missing := [name for name in required if name not in {**given, **kwargs}]:
            raise UsageError(f"{function.__name__} needs {' and '.join(missing)}.")
        for name, value in {**given, **kwargs}.items():
            annotation = _evaluated(function, name)
            if not _fits(value, annotation):
                wanted = " or ".join(dict.fromkeys(_descriptions(annotation)))
                items = sorted({type(item).__name__ for item in value}) if isinstance(value, list | tuple) else []
                is_plain = isinstance(value, str | int | float)
                found = (
                    repr(value)[:60]
                    if is_plain
                    else type(value).__name__ + (f" of {', '.join(items)}" if items else "")
                )
                raise InvalidInput(f"{function.__name__}: {name} should be {wanted}, not {found}.")
        try:
            return named(*args, **kwargs)
        except OSError as error:  # a name that the system does not take, or a file that may not be opened
            if error.filename is None:
                raise
            raise InvalidInput(f"{str(error.filename)[:200]} cannot be opened: {error.strerror}.") from None

    return checked


def _plain(value: typing.Any) -> typing.Any:
    """Return a number of NumPy as a number of Python, and anything else as it is."""
    is_number = type(value).__module__ == "numpy" and isinstance(value, numbers.Number)
    return value.item() if is_number else value


@functools.cache
def _evaluated(function: Callable[..., object], name: str) -> object:
    """Return the annotation of a parameter, with Any for types that are known to type checkers only."""
    parameter = inspect.signature(function).parameters.get(name)
    if parameter is None or parameter.annotation is REQUIRED or parameter.kind > parameter.KEYWORD_ONLY:
        return typing.Any
    known: dict[str, object] = {}
    while True:
        try:
            annotations = types.SimpleNamespace(__annotations__={name: parameter.annotation})
            return typing.get_type_hints(annotations, function.__globals__, known, include_extras=True)[name]
        except NameError as error:
            known[str(error.name)] = typing.Any  # each turn knows one name more
        except TypeError:
            return typing.Any


_KINDS: dict[object, tuple[type | tuple[type, ...], str]] = {
    str: (str, "a text"),
    bool: (numbers.Integral, "True or False"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    pathlib.Path: (pathlib.Path, "a path"),
    types.NoneType: (types.NoneType, "None"),
}
"""What a value of a simple type is, and its description."""


def _fits(value: object, annotation: object) -> bool:
    """Return False if a value is certainly not of this type."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is typing.Any:
        return True
    if origin is typing.Annotated:
        return _fits(value, inner[0])
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, kind) for kind in inner)
    if annotation in _KINDS:
        return isinstance(value, _KINDS[annotation][0])
    if origin in (collections.abc.Sequence, collections.abc.Iterable):
        is_list = isinstance(value, origin) and not isinstance(value, bytes | dict)
        parts = value[:1] if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
        return is_list and all(_fits(part, inner[0]) for part in parts)
    if origin is typing.Literal:
        return isinstance(value, tuple(map(type, inner)))  # the command itself names the choices, and the nearest one
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is collections.abc.Mapping:
        return isinstance(value, origin)
    if getattr(annotation, "_is_protocol", False):
        return all(hasattr(value, member) for member in vars(annotation) if not member.startswith("_"))
    return not isinstance(annotation, type) or isinstance(value, annotation)


def _descriptions(annotation: object) -> Iterator[str]:
    """Yield what a value of this type is called."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from _descriptions(inner[0])
    elif origin in (typing.Union, types.UnionType):
        for kind in inner:
            yield from _descriptions(kind)
    elif annotation in _KINDS:
        yield _KINDS[annotation][1]
    elif origin in (collections.abc.Sequence, collections.abc.Iterable):
        yield f"a list ({next(_descriptions(inner[0]), 'of anything')} each)"
    elif origin is typing.Literal:
        yield f"one of {', '.join(map(str, inner))}"
    elif origin is collections.abc.Callable:
        yield "a function"
    else:
        name = getattr(annotation, "__name__", "value")
        yield f"an {name}" if name[0] in "AEIOU" else f"a {name}"
