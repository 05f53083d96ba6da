"""Typed, frozen settings from TOML, JSON, HTTP or `--set`: one reader, and misspelt keys refused by their path."""

import dataclasses
import json
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from peasy.errors import InvalidInput, NotFound, PeasyError, did_you_mean

T = TypeVar("T")


def read(kind: type[T], data: Any, where: str = "") -> T:
    """Build the dataclass `kind` from plain data; every error names the path of the key.

    A field that may be one of several dataclasses is chosen by the key `kind`, which each of them
    carries as a class variable of that name.
    """
    return _read(kind, data, where)


def plain(settings: Any) -> Any:
    """The plain data that `read` makes the same settings from."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        tag = {"kind": type(settings).kind} if hasattr(type(settings), "kind") else {}
        fields = {f.name: plain(getattr(settings, f.name)) for f in dataclasses.fields(settings) if f.name != "kind"}
        return tag | fields
    if isinstance(settings, Mapping):
        return {key: plain(value) for key, value in settings.items()}
    if isinstance(settings, (list, tuple)):
        return [plain(value) for value in settings]
    return settings


def read_file(kind: type[T], path: str | Path) -> T:
    """Read settings from a .toml or .json file."""
    return read(kind, load(path), where=Path(path).name)


def load(path: str | Path) -> Any:
    """The plain data of a .toml or .json file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}.") from None
    try:
        return json.loads(text, parse_constant=_no_constant) if path.suffix == ".json" else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InvalidInput(f"{path} is not valid {path.suffix[1:].upper() or 'TOML'}: {error}.") from None


def assign(data: dict[str, Any], setting: str) -> dict[str, Any]:
    """`data` with one `a.b=value` put in; the value is read as JSON, else taken as text.

    >>> assign({"lr": 1}, "model.layers=4")
    {'lr': 1, 'model': {'layers': 4}}
    """
    path, equals, text = setting.partition("=")
    if not equals or not path:
        raise InvalidInput(f'"{setting}" is not of the form key=value.')
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    return _assigned(data, path.split("."), value)


def _assigned(data: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    inner = data.get(first)
    return data | {first: _assigned(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


def _no_constant(name: str) -> Any:
    raise InvalidInput(f"{name} is not a number JSON knows.")


def _read(kind: Any, data: Any, where: str) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return data
    if origin is typing.Literal:
        return _read_choice(inner, data, where)
    if origin in (typing.Union, types.UnionType):
        return _read_union(inner, data, where)
    if origin in (tuple, list):
        return _read_sequence(origin, inner, data, where)
    if origin in (dict, Mapping):
        pairs = _expect(Mapping, "a table", data, where).items()
        return {key: _read(inner[1], value, f"{where}.{key}" if where else key) for key, value in pairs}
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(typing.cast(type, kind), data, where)
    return _read_plain(kind, data, where)


def _read_dataclass(kind: type, data: Any, where: str) -> Any:
    table = dict(_expect(Mapping, "a table", data, where))
    tag = getattr(kind, "kind", None)
    if tag is not None and table.pop("kind", tag) != tag:
        raise _wrong(f"should have kind {tag!r}", data, where)
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}
    for key in table:
        if key not in fields:
            hint = did_you_mean(key, fields) or f"Known here: {', '.join(fields)}."
            raise InvalidInput(f"{_at(where, key)}: there is no such key.", hint=hint)
    for name, field in fields.items():
        if name not in table and field.default is field.default_factory is dataclasses.MISSING:
            raise InvalidInput(f"{_at(where, name)} is missing.")
    values = {name: _read(hints[name], value, _at(where, name)) for name, value in table.items()}
    try:
        return kind(**values)
    except PeasyError as error:
        raise type(error)(f"{where}: {error.message}" if where else error.message, hint=error.hint) from None


def _read_choice(choices: tuple[Any, ...], data: Any, where: str) -> Any:
    if data not in choices or isinstance(data, bool) is not isinstance(choices[0], bool):
        hint = (did_you_mean(data, map(str, choices)) or "") if isinstance(data, str) else ""
        raise _wrong(f"should be one of {', '.join(map(str, choices))}", data, where, hint or None)
    return data


def _read_union(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    tagged = {kind.kind: kind for kind in kinds if dataclasses.is_dataclass(kind) and hasattr(kind, "kind")}
    if tagged and isinstance(data, Mapping):
        tag = _read_choice(tuple(tagged), data.get("kind"), _at(where, "kind"))
        return _read(tagged[tag], data, where)
    errors = []
    for kind in kinds:
        try:
            return _read(kind, data, where)
        except InvalidInput as error:
            errors.append(error)
    raise errors[0]


def _read_sequence(origin: type, inner: tuple[Any, ...], data: Any, where: str) -> Any:
    values = _expect((list, tuple), "a list", data, where)
    if origin is tuple and inner[-1] is not Ellipsis:
        if len(values) != len(inner):
            raise _wrong(f"should have {len(inner)} entries", data, where)
        kinds = inner
    else:
        kinds = (inner[0],) * len(values)
    return origin(
        _read(kind, value, f"{where}[{i}]") for i, (kind, value) in enumerate(zip(kinds, values, strict=True))
    )


_PLAIN = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _read_plain(kind: Any, data: Any, where: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        data = float(data) if abs(data) < 2**1023 else math.inf
    if type(data) is not kind:
        raise _wrong(f"should be {_PLAIN.get(kind, kind.__name__)}", data, where)
    if kind is float and not math.isfinite(data):
        raise _wrong("should be a finite number", data, where)
    return data


def _expect(kind: Any, said: str, data: Any, where: str) -> Any:
    if not isinstance(data, kind):
        raise _wrong(f"should be {said}", data, where)
    return data


def _wrong(should: str, data: Any, where: str, hint: str | None = None) -> InvalidInput:
    shown = repr(data)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return InvalidInput(f"{where or 'this'} {should}, not {shown}.", hint=hint)


def _at(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
