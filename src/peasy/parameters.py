"""Parameters of a command, read from its signature and docstring: what CLI flags and HTTP bodies are derived from."""

import ast
import collections.abc
import dataclasses
import functools
import inspect
import itertools
import numbers
import operator
import pathlib
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping

from annotated_types import Ge, Gt, Le, Lt

from peasy.errors import InvalidInput, UnknownKeyword, UsageError, check_file_name, did_you_mean

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
    for name, parameter in _parameters(command).items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            found[name] = CommandParameter(name, parameter.annotation, parameter.default, explanations.get(name, ""))
    return found if options is None else {**found, **field_parameters(options)}


@functools.cache
def field_parameters(options: type) -> Mapping[str, CommandParameter]:
    """Return the fields of a dataclass as parameters; the string below a field explains it."""
    assert dataclasses.is_dataclass(options)
    hints, explanations = typing.get_type_hints(options, include_extras=True), attribute_docstrings(options)
    found = {}
    for field in dataclasses.fields(options):
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        default = REQUIRED if default is dataclasses.MISSING else default
        found[field.name] = CommandParameter(field.name, hints[field.name], default, explanations.get(field.name, ""))
    return found


def check_bounds(
    annotations: Mapping[str, object], arguments: Mapping[str, object], label: Callable[[str], str] = str
) -> None:
    """Raise InvalidInput for the first argument outside the bounds in its annotation; `label` names it there.

    >>> check_bounds({"n": typing.Annotated[int, Ge(1)]}, {"n": 0})
    Traceback (most recent call last):
    peasy.errors.InvalidInput: n is 0.
    """
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        bounds = list(_bounds(annotations.get(name)))
        if not all(holds(value, limit) for holds, _, limit in bounds):
            hint = f"{label(name)} must be {' and '.join(text.format(limit) for _, text, limit in bounds)}."
            raise InvalidInput(f"{label(name)} is {value}.", hint=hint)


@typing.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Record:
    """Base class whose subclasses are frozen dataclasses, without a decorator; not those with `is_record=False`.

    `eq=False` where a field is an array; `repr` and `kw_only` as in `dataclass`.
    """

    def __init_subclass__(
        cls, *, eq: bool = True, repr: bool = True, kw_only: bool = False, is_record: bool = True, **options: object
    ) -> None:
        super().__init_subclass__(**options)
        if is_record:
            dataclasses.dataclass(frozen=True, eq=eq, repr=repr, kw_only=kw_only)(cls)


class FrozenSettings(Record, is_record=False):
    """Base class of settings: frozen dataclasses."""


class BoundedSettings(FrozenSettings, eq=False):
    """Base class of settings whose numbers must lie within the bounds in their annotations."""

    def __post_init__(self) -> None:
        kind: type = type(self)
        check_bounds(_type_hints(kind), vars(self))


class TypedSettings(BoundedSettings, eq=False):
    """Base class of settings that a user gives: their types are checked, too."""

    def __post_init__(self) -> None:
        kind: type = type(self)
        for name, annotation in _field_types(kind).items():
            object.__setattr__(self, name, _checked_value(name, getattr(self, name), annotation))
        check_bounds(_field_types(kind), vars(self))


@functools.cache
def _field_types(kind: type) -> Mapping[str, object]:
    assert dataclasses.is_dataclass(kind)
    return {field.name: _evaluate(field.type, vars(sys.modules[kind.__module__])) for field in dataclasses.fields(kind)}


@functools.cache
def _type_hints(kind: type) -> Mapping[str, object]:
    return typing.get_type_hints(kind, include_extras=True)


_Comparison = Callable[[typing.Any, typing.Any], bool]
_BOUNDS: dict[type, tuple[_Comparison, str]] = {
    Ge: (operator.ge, "{} or more"),
    Gt: (operator.gt, "above {}"),
    Le: (operator.le, "{} or less"),
    Lt: (operator.lt, "below {}"),
}
"""Comparison of each kind of bound, and its description."""


def _bounds(annotation: object) -> Iterator[tuple[_Comparison, str, object]]:
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


def attribute_docstrings(kind: type) -> dict[str, str]:
    """Return the strings that stand below the fields of a class and of its base classes, each on one line."""
    found: dict[str, str] = {}
    for base in filter(inspect.get_annotations, reversed(kind.__mro__)):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in itertools.pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found


def check_keywords(function: str, given: collections.abc.Iterable[str], known: collections.abc.Iterable[str]) -> None:
    """Raise for the first keyword that a function does not have, with the closest one that it has.

    >>> check_keywords("generate", {"max_new_tokens": 5}, ("max_tokens", "seed"))
    Traceback (most recent call last):
    peasy.errors.UnknownKeyword: generate has no parameter max_new_tokens. Did you mean max_tokens?
    """
    known = list(known)
    for name in given:
        if name not in known:
            suggestion = did_you_mean(name, known) or f"It has {', '.join(known)}."
            raise UnknownKeyword(f"{function} has no parameter {name}. {suggestion}")


@functools.cache
def _parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def parameter_names(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of the parameters of a function or class, with those of `**options: Unpack[...]`.

    >>> parameter_names(check_keywords)
    ('function', 'given', 'known')
    """
    return _names(function)


@functools.cache
def _names(function: Callable[..., object]) -> tuple[str, ...]:
    names: list[str] = []
    for name, parameter in _parameters(function).items():
        options = typing.get_args(parameter.annotation) if parameter.kind is parameter.VAR_KEYWORD else ()
        names += options[0].__annotations__ if options else [name]
    return tuple(names)


def with_checked_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with missing, unknown and unusable arguments answered in a sentence.

    Numbers and arrays of NumPy and torch become those of Python where the signature asks for these.

    >>> with_checked_arguments(check_file_name)(named="notes.md")
    Traceback (most recent call last):
    peasy.errors.UsageError: check_file_name needs name.
    """

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        parameters, known = _parameters(function), _names(function)
        kinds = {name: parameter.kind for name, parameter in parameters.items()}
        positional = [name for name, kind in kinds.items() if kind < inspect.Parameter.VAR_POSITIONAL]
        if len(args) > len(positional) and inspect.Parameter.VAR_POSITIONAL not in kinds.values():
            names = [name for name in positional if name != "self"]
            rule = f"without a name only {', '.join(names)}" if names else "no arguments without a name"
            count = len(args) - len(positional) + len(names)
            raise UsageError(f"{function.__name__} takes {rule}; {count} were given.")
        given = _checked_values(function, dict(zip(positional, args, strict=False)))
        options = _checked_values(function, kwargs)
        single = [name for name in known if name in kinds and kinds[name] != inspect.Parameter.VAR_POSITIONAL]
        required = [name for name in single if parameters[name].default is REQUIRED]
        named = [name for name in required if kinds[name] < inspect.Parameter.VAR_KEYWORD]
        if missing := [name for name in named if name not in given and name not in options]:
            raise UsageError(f"{function.__name__} needs {' and '.join(missing)}.")
        check_bounds({name: parameter.annotation for name, parameter in parameters.items()}, given | options)
        if named == required and not options.keys() <= set(known):  # else it takes any keyword, and checks them itself
            check_keywords(function.__name__, options, known)
        try:
            return function(*given.values(), *args[len(positional) :], **options)  # type: ignore[arg-type]
        except OSError as error:  # a name that the system does not take, or a file that may not be opened
            if error.filename is None:
                raise
            raise InvalidInput(f"{str(error.filename)[:200]} cannot be opened: {error.strerror}.") from None

    return checked


def checked_options(function: Callable[..., object], options: Mapping[str, object], label: str) -> dict[str, object]:
    """Return keyword arguments as a function or method takes them, or raise; `label` is the name shown for it."""
    check_keywords(label, options, [name for name in _names(function) if name != "self"])
    return _checked_values(function, options, label)


def _checked_values(
    function: Callable[..., object], values: Mapping[str, object], label: str | None = None
) -> dict[str, object]:
    name = label or function.__name__
    return {key: _checked_value(f"{name}: {key}", value, _evaluated(function, key)) for key, value in values.items()}


def _checked_value(label: str, value: typing.Any, annotation: object) -> object:
    """Return a value as its annotation has it, or raise; `label` names it there. One text stands for a tuple of one.

    >>> _checked_value("n", "3", int)
    Traceback (most recent call last):
    peasy.errors.InvalidInput: n should be a whole number, not '3'.
    """
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
    elif annotation == tuple[str, ...] and isinstance(value, str):
        value = (value,)
    elif not _fits(value, annotation):
        if isinstance(value, Iterator):
            value = list(itertools.islice(value, 1_000_000))
        elif callable(getattr(value, "tolist", None)):  # an array of NumPy or torch
            value = value.tolist()
    if _has_huge_number(value):
        raise InvalidInput(f"{label} is too large.", hint="Whole numbers may have 64 bits.")
    if not _fits(value, annotation):
        wanted = " or ".join(dict.fromkeys(_descriptions(annotation)))
        items = sorted({type(item).__name__ for item in value}) if isinstance(value, list | tuple) else []
        of_items = f" of {', '.join(items)}" if items else ""
        found = repr(value)[:60] if isinstance(value, str | int | float) else type(value).__name__ + of_items
        raise InvalidInput(f"{label} should be {wanted}, not {found}.")
    if pathlib.Path in _simple_types(annotation):
        for part in value if isinstance(value, list | tuple) else [value]:
            check_file_name(part)
    return value


def _has_huge_number(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_huge_number, value))
    return isinstance(value, int) and abs(value) >= 1 << 64


@functools.cache
def _evaluated(function: Callable[..., object], name: str) -> object:
    """Return the annotation of a parameter, with Any for types that are known to type checkers only."""
    parameters = _parameters(function)
    parameter = parameters.get(name)
    if parameter is None:  # among the options of a TypedDict
        tables = [typing.get_args(p.annotation) for p in parameters.values() if p.kind == p.VAR_KEYWORD]
        options = tables[0][0] if tables and tables[0] else None
        annotations = getattr(options, "__annotations__", {})
        return _evaluate(annotations.get(name, typing.Any), vars(sys.modules[getattr(options, "__module__", __name__)]))
    if parameter.annotation is REQUIRED or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return typing.Any
    return _evaluate(parameter.annotation, function.__globals__)


def _evaluate(annotation: object, names: Mapping[str, object]) -> object:
    known: dict[str, object] = {}
    while True:
        try:
            annotations = types.SimpleNamespace(__annotations__={"it": annotation})
            return typing.get_type_hints(annotations, dict(names), known, include_extras=True)["it"]
        except NameError as error:
            known[str(error.name)] = typing.Any  # each turn knows one name more
        except (TypeError, AttributeError):
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


@functools.cache
def _simple_types(annotation: object) -> frozenset[object]:
    """Return the types of which an annotation is a union, and those of the items of its lists."""
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        return _simple_types(inner[0])
    is_list = typing.get_origin(annotation) in (
        typing.Union, types.UnionType, collections.abc.Sequence, collections.abc.Iterable,
    )  # fmt: skip
    return frozenset().union(*map(_simple_types, inner)) if is_list else frozenset([annotation])


def _fits(value: typing.Any, annotation: object) -> bool:
    """Return False if a value is certainly not of this type."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is typing.Any:
        return True
    if origin is typing.Annotated:
        return _fits(value, inner[0])
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, kind) for kind in inner)
    if annotation in _KINDS:
        is_number = annotation in (int, float)
        return isinstance(value, _KINDS[annotation][0]) and not (is_number and isinstance(value, bool))
    if origin in (collections.abc.Sequence, collections.abc.Iterable, list):
        is_list = isinstance(value, origin) and isinstance(value, collections.abc.Collection)
        if not is_list or isinstance(value, bytes | bytearray | dict) or hasattr(value, "tolist"):
            return False
        return all(_fits(part, inner[0]) for part in (value[:1] if isinstance(value, str) else value))
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is ... and isinstance(value, tuple | list) else inner
        is_tuple = isinstance(value, tuple | list) and len(value) == len(kinds)
        return is_tuple and all(map(_fits, value, kinds))
    if origin is typing.Literal:
        return isinstance(value, tuple(map(type, inner)))  # the command itself names the choices, and the nearest one
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is collections.abc.Mapping:
        return isinstance(value, origin) and all(map(_fits, value, itertools.repeat(inner[0])))
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
    elif origin in (collections.abc.Sequence, collections.abc.Iterable, list):
        yield f"a list ({' or '.join(_descriptions(inner[0])) or 'of anything'} each)"
    elif origin is typing.Literal:
        yield f"one of {', '.join(map(str, inner))}"
    elif origin is collections.abc.Callable:
        yield "a function"
    elif origin is tuple:
        yield f"a tuple ({', '.join(' or '.join(_descriptions(kind)) for kind in inner if kind is not ...)})"
    else:
        name = getattr(annotation, "__name__", "value")
        yield f"an {name}" if name[0] in "AEIOU" else f"a {name}"
