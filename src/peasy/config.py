"""Typed configuration from TOML, JSON, HTTP or `--set`: frozen dataclasses; unknown keys are rejected by their path."""

import dataclasses
import json
import math
import re
import reprlib
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from peasy.errors import InvalidInput, NotFound, PeasyError, did_you_mean

T = TypeVar("T")
JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
JsonDict = dict[str, Any]
"""JSON object, or the same from TOML: plain dicts, lists, numbers, strings, booleans and None."""

_FRACTION = re.compile(r"[+-]?\d{1,15}\s*/\s*0*[1-9]\d{0,14}")
_TEXT_OR_FRACTION = re.compile(
    rf"""((?s:\"{{3}}.*?\"{{3}}|'{{3}}.*?'{{3}})|\"(?:\\.|[^\"\\])*\"|'[^']*'|\#.*)|(?<![\w./])({_FRACTION.pattern})(?![\w./])"""
)
"""Quoted text or a comment of a TOML file, which may contain anything, or a fraction outside of them."""


def read(kind: type[T], data: object, where: str = "") -> T:
    """Build the dataclass `kind` from plain data; every error names the path of the key.

    A field that may be one of several dataclasses is chosen by the key `kind`, which each of them
    carries as a class variable of that name.
    """
    return typing.cast(T, _read(kind, data, where))


def to_plain(settings: object) -> Any:
    """Convert settings to plain data; inverse of `read`."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        kind = getattr(type(settings), "kind", None)
        tag = {} if kind is None else {"kind": kind}
        fields = {f.name: to_plain(getattr(settings, f.name)) for f in dataclasses.fields(settings) if f.name != "kind"}
        return tag | fields
    if isinstance(settings, Mapping):
        return {key: to_plain(value) for key, value in settings.items()}
    if isinstance(settings, (list, tuple)):
        return [to_plain(value) for value in settings]
    return settings


def read_file(kind: type[T], path: str | Path) -> T:
    """Read settings from a .toml or .json file."""
    return read(kind, load(path), where=Path(path).name)


def load(path: str | Path) -> Any:
    """Load a .toml or .json file as plain data."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8 text.") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    is_json = path.suffix == ".json"
    try:
        return parse_json(text) if is_json else parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not valid {'JSON' if is_json else 'TOML'}: {error}.") from None


def parse_toml(text: str) -> JsonDict:
    """Parse TOML; a fraction may be bare, and becomes text, which `read` takes for a number.

    >>> parse_toml('scale = 1/2  # not "1/3"')
    {'scale': '1/2'}
    """
    return tomllib.loads(_TEXT_OR_FRACTION.sub(lambda match: match[1] or f'"{match[2]}"', text))


def merge_settings(data: Mapping[str, object], changes: Mapping[str, object]) -> JsonDict:
    """Return `data` merged with `changes`, table by table; a different `kind` replaces the whole table."""
    merged = dict(data)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = merge_settings(old, value) if value.get("kind", old.get("kind")) == old.get("kind") else value
        merged[key] = value
    return merged


def apply_setting(data: JsonDict, setting: str) -> JsonDict:
    """Return `data` with one setting `a.b=value` applied; the value is JSON, or else text.

    >>> apply_setting({"lr": 1}, "model.layers=4")
    {'lr': 1, 'model': {'layers': 4}}
    """
    path, equals, text = setting.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InvalidInput(f'"{setting}" is not of the form key=value.')
    try:
        value = parse_json(text)
    except ValueError:
        value = text
    return _set_path(data, keys, value)


def flatten(data: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return nested settings as text by dotted path, as `apply_setting` reads them; None is empty.

    >>> flatten({"model": {"layers": 4, "bias": True}, "data": "stories"})
    {'model.layers': '4', 'model.bias': 'true', 'data': 'stories'}
    """
    flat: dict[str, str] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return flat


def _set_path(data: JsonDict, path: list[str], value: object) -> JsonDict:
    first, *rest = path
    inner = data.get(first)
    return data | {first: _set_path(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


def parse_json(text: str | bytes, where: str = "") -> Any:
    """Parse JSON strictly: duplicate keys, NaN, infinity and too deep nesting are a ValueError.

    For a file, `where` names it, and the error is an InvalidInput.

    >>> parse_json(b'{"a": 1}', "config.json")
    {'a': 1}
    """

    def reject_constant(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    def reject_duplicate_keys(pairs: list[tuple[str, JsonValue]]) -> JsonValue:
        table = dict(pairs)
        if len(table) < len(pairs):
            ((repeated, _),) = Counter(name for name, _ in pairs).most_common(1)
            raise ValueError(f"it has the key {reprlib.repr(repeated)} twice")
        return table

    if where and not text.strip():
        raise InvalidInput(f"{where} is empty.")
    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        return json.loads(text, parse_constant=reject_constant, object_pairs_hook=reject_duplicate_keys)
    except (ValueError, RecursionError) as error:
        problem = ValueError("it is nested too deeply") if isinstance(error, RecursionError) else error
        if not where:
            raise problem from None
        raise InvalidInput(f"{where} is not valid JSON: {problem}.") from None


def _read(kind: object, data: object, where: str) -> object:
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
        pairs = _as_table(data, where).items()
        return {key: _read(inner[1], value, _join_path(where, key)) for key, value in pairs}
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(typing.cast(type, kind), data, where)
    return _read_plain(kind, data, where)


def _read_dataclass(kind: type, data: object, where: str) -> object:
    table = _as_table(data, where)
    tag = getattr(kind, "kind", None)
    if tag is not None and table.pop("kind", tag) != tag:
        raise _invalid(f"should have kind {tag!r}", data, where)
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}
    for key in table:
        if key not in fields:
            hint = did_you_mean(str(key), fields) or f"Known keys: {', '.join(fields)}."
            raise InvalidInput(f"{_join_path(where, key)}: unknown key.", hint=hint)
    for name, field in fields.items():
        if name not in table and field.default is field.default_factory is dataclasses.MISSING:
            raise InvalidInput(f"{_join_path(where, name)} is missing.")
    values = {name: _read(hints[name], value, _join_path(where, name)) for name, value in table.items()}
    try:
        return kind(**values)
    except PeasyError as error:
        raise type(error)(f"{where}: {error.message}" if where else error.message, hint=error.hint) from None


def _read_choice(choices: tuple[object, ...], data: object, where: str) -> object:
    if not any(type(choice) is type(data) and choice == data for choice in choices):
        hint = did_you_mean(data, map(str, choices)) if isinstance(data, str) else None
        raise _invalid(f"should be one of {', '.join(map(str, choices))}", data, where, hint)
    return data


def _read_union(kinds: tuple[object, ...], data: object, where: str) -> object:
    if data is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    tagged = {kind.kind: kind for kind in kinds if dataclasses.is_dataclass(kind) and hasattr(kind, "kind")}
    if tagged and isinstance(data, Mapping):
        if "kind" not in data:
            raise InvalidInput(f"{_join_path(where, 'kind')} is missing.", hint=f"It is one of {', '.join(tagged)}.")
        tag = _read_choice(tuple(tagged), data["kind"], _join_path(where, "kind"))
        return _read(tagged[tag], data, where)
    for kind in sorted(kinds, key=lambda kind: kind is not type(data)):  # 1 stays an int for `float | int`
        try:
            return _read(kind, data, where)
        except InvalidInput:
            if len(kinds) == 1 or _looks_like(kind, data):  # the inner error is more precise
                raise
    raise _invalid(f"should be {' or '.join(dict.fromkeys(map(_type_name, kinds)))}", data, where)


def _looks_like(kind: object, data: object) -> bool:
    """True if the data is clearly meant as this type and only something inside it is wrong."""
    origin = typing.get_origin(kind)
    if isinstance(data, Mapping):
        return dataclasses.is_dataclass(kind) or origin in (dict, Mapping)
    return isinstance(data, list | tuple) and origin in (list, tuple)


def _type_name(kind: object) -> str:
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return " or ".join(map(str, typing.get_args(kind)))
    if origin in (list, tuple):
        return "a list"
    if dataclasses.is_dataclass(kind) or origin in (dict, Mapping):
        return "a table"
    return _TYPE_NAMES.get(kind, getattr(kind, "__name__", str(kind)))


def _read_sequence(origin: type, inner: tuple[object, ...], data: object, where: str) -> object:
    if not isinstance(data, list | tuple):
        raise _invalid("should be a list", data, where)
    kinds = (inner[0],) * len(data) if origin is list or inner[-1] is Ellipsis else inner
    if len(data) != len(kinds):
        raise _invalid(f"should have {len(kinds)} entries", data, where)
    return origin(_read(kind, data[i], f"{where}[{i}]") for i, kind in enumerate(kinds))


_TYPE_NAMES: dict[object, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _read_plain(kind: object, data: object, where: str) -> object:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        data = float(data) if abs(data) < 2**1023 else math.inf
    if kind is float and isinstance(data, str) and _FRACTION.fullmatch(data):
        data = float(Fraction("".join(data.split())))
    if type(data) is not kind:
        raise _invalid(f"should be {_type_name(kind)}", data, where)
    if isinstance(data, float) and not math.isfinite(data):
        raise _invalid("should be a finite number", data, where)
    return data


def _as_table(data: object, where: str) -> dict[str, object]:
    if not isinstance(data, Mapping):
        raise _invalid("should be a table", data, where)
    return dict(data)


def _invalid(requirement: str, data: object, where: str, hint: str | None = None) -> InvalidInput:
    return InvalidInput(f"{where or 'this'} {requirement}, not {reprlib.repr(data)}.", hint=hint)


def _join_path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
