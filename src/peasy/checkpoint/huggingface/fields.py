"""Strict reader of a Hugging Face config.json: each field is read, ignored by name, or refused by name."""

import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from peasy.checkpoint.safe_folder import short_repr
from peasy.errors import InvalidInput, did_you_mean

T = TypeVar("T")

MAX_SIZE = 2**31 - 1
"""Largest plausible size in a model; a larger one means a damaged file."""

MAX_LAYERS = 1000

_REQUIRED: Any = object()


class ConfigFields:
    """Fields of one config.json, with a record of which were read."""

    def __init__(self, data: Mapping[str, object], where: str = "config.json") -> None:
        if not isinstance(data, Mapping):
            raise InvalidInput(f"{where} should be a JSON object, not {short_repr(data)}.")
        self.data, self.where = data, where
        self._seen: set[str] = set()

    def has(self, name: str) -> bool:
        """Return whether the field exists and is not null."""
        self._seen.add(name)
        return self.data.get(name) is not None

    def integer(self, name: str, default: Any = _REQUIRED, *, minimum: int = 1, maximum: int = MAX_SIZE) -> Any:
        """Read an integer between `minimum` and `maximum`."""
        value = self._get(name, default)
        if value is default:
            return value
        if type(value) is not int or not minimum <= value <= maximum:
            raise self.invalid(name, f"an integer from {minimum} to {maximum}")
        return value

    def number(self, name: str, default: Any = _REQUIRED, *, minimum: float = 0.0, maximum: float = 1e12) -> float:
        """Read a number between `minimum` and `maximum`."""
        value = self._get(name, default)
        if value is default:
            return typing.cast(float, value)
        if type(value) not in (int, float) or not (minimum <= value <= maximum and math.isfinite(value)):
            raise self.invalid(name, f"a number from {minimum:g} to {maximum:g}")
        return float(value)

    def boolean(self, name: str, default: Any = _REQUIRED) -> bool:
        """Read a boolean."""
        value = self._get(name, default)
        if value is not default and type(value) is not bool:
            raise self.invalid(name, "true or false")
        return typing.cast(bool, value)

    def choice(self, name: str, choices: Mapping[str, T], default: Any = _REQUIRED) -> T:
        """Read a string and return its value in `choices`."""
        value = self._get(name, default)
        if not isinstance(value, str) or value not in choices:
            near = did_you_mean(value, choices) if isinstance(value, str) else None
            raise self.invalid(name, f"one of {', '.join(choices)}", near)
        return choices[value]

    def token_ids(self, name: str) -> tuple[int, ...]:
        """Read one token id or a list of them; a missing field gives an empty tuple."""
        value = self._get(name, None)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if len(ids) > 1000 or any(type(id) is not int or not 0 <= id <= MAX_SIZE for id in ids):
            raise self.invalid(name, f"a token id from 0 to {MAX_SIZE}, or a list of them")
        return tuple(ids)

    def nested(self, name: str) -> "ConfigFields":
        """Return the fields of a nested object, empty if the field is missing."""
        value = self._get(name, {})
        if not isinstance(value, Mapping):
            raise self.invalid(name, "a JSON object")
        return ConfigFields(value, f"{self.where}: {name}")

    def require_value(self, name: str, *allowed: object, reason: str) -> None:
        """Refuse the field unless it is missing, null or one of `allowed`."""
        value = self._get(name, None)
        if value is not None and not any(type(value) is type(item) and value == item for item in allowed):
            message = f"{self.where}: {name} is {short_repr(value)}. {reason}"
            raise InvalidInput(message, hint=f"Supported: {', '.join(map(short_repr, allowed))}." if allowed else None)

    def ignore(self, names: str | Iterable[str]) -> None:
        """Mark fields that do not change what peasy computes; a string is a list of names separated by spaces."""
        self._seen.update(names.split() if isinstance(names, str) else names)

    def reject_unknown(self) -> None:
        """Refuse every field that was neither read nor ignored."""
        unknown = [name for name in self.data if name not in self._seen]
        if unknown:
            raise InvalidInput(
                f"{self.where} has unknown fields: {', '.join(map(str, unknown[:8]))}.",
                hint="They may change the results. If you know that they do not, list them in `ignore_fields`.",
            )

    def invalid(self, name: str, allowed: str, hint: str | None = None) -> InvalidInput:
        """Return the error for a field with an invalid value."""
        return InvalidInput(
            f"{self.where}: {name} should be {allowed}, not {short_repr(self.data.get(name))}.", hint=hint
        )

    def _get(self, name: str, default: Any) -> Any:
        self._seen.add(name)
        value = self.data.get(name)
        if value is None:
            if default is _REQUIRED:
                raise InvalidInput(f"{self.where}: {name} is missing.")
            return default
        return value
