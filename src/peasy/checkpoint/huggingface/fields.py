"""Strict reader of a Hugging Face config.json: each field is read, ignored by name, or refused by name."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from peasy.errors import InvalidInput, did_you_mean

T = TypeVar("T")

MOST = 2**31 - 1
"""Largest plausible size in a model; a larger one means a damaged file."""

MOST_LAYERS = 1000

_REQUIRED: Any = object()


class Fields:
    """Fields of one config.json, with a record of which were read."""

    def __init__(self, data: Mapping[str, Any], where: str = "config.json") -> None:
        if not isinstance(data, Mapping):
            raise InvalidInput(f"{where} should be a JSON object, not {_shown(data)}.")
        self.data, self.where = data, where
        self._known: set[str] = set()

    def has(self, name: str) -> bool:
        """Return whether the field exists and is not null."""
        self._known.add(name)
        return self.data.get(name) is not None

    def whole(self, name: str, default: Any = _REQUIRED, *, least: int = 1, most: int = MOST) -> Any:
        """Read an integer between `least` and `most`."""
        value = self._value(name, default)
        if value is default:
            return value
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, f"an integer from {least} to {most}")
        return value

    def number(self, name: str, default: Any = _REQUIRED, *, least: float = 0.0, most: float = 1e12) -> float:
        """Read a number between `least` and `most`."""
        value = self._value(name, default)
        if value is default:
            return value
        if type(value) not in (int, float) or not (least <= value <= most and math.isfinite(value)):
            raise self.wrong(name, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str, default: Any = _REQUIRED) -> bool:
        """Read a boolean."""
        value = self._value(name, default)
        if value is not default and type(value) is not bool:
            raise self.wrong(name, "true or false")
        return value

    def choice(self, name: str, choices: Mapping[str, T], default: Any = _REQUIRED) -> T:
        """Read a string and return its value in `choices`."""
        value = self._value(name, default)
        if not isinstance(value, str) or value not in choices:
            near = did_you_mean(value, choices) if isinstance(value, str) else None
            raise self.wrong(name, f"one of {', '.join(choices)}", near)
        return choices[value]

    def ids(self, name: str) -> tuple[int, ...]:
        """Read one token id or a list of them; a missing field gives an empty tuple."""
        value = self._value(name, None)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if len(ids) > 1000 or any(type(id) is not int or not 0 <= id <= MOST for id in ids):
            raise self.wrong(name, f"a token id from 0 to {MOST}, or a list of them")
        return tuple(ids)

    def table(self, name: str) -> "Fields":
        """Return the fields of a nested object, empty if the field is missing."""
        value = self._value(name, {})
        if not isinstance(value, Mapping):
            raise self.wrong(name, "a JSON object")
        return Fields(value, f"{self.where}: {name}")

    def only(self, name: str, *allowed: Any, why: str) -> None:
        """Refuse the field unless it is missing, null or one of `allowed`."""
        value = self._value(name, None)
        if value is not None and not any(type(value) is type(item) and value == item for item in allowed):
            message = f"{self.where}: {name} is {_shown(value)}. {why}"
            raise InvalidInput(message, hint=f"Supported: {', '.join(map(_shown, allowed))}." if allowed else None)

    def ignore(self, names: str | Iterable[str]) -> None:
        """Mark fields that do not change what peasy computes; a string is a list of names separated by spaces."""
        self._known.update(names.split() if isinstance(names, str) else names)

    def close(self) -> None:
        """Refuse every field that was neither read nor ignored."""
        unknown = [name for name in self.data if name not in self._known]
        if unknown:
            raise InvalidInput(
                f"{self.where} has unknown fields: {', '.join(map(str, unknown[:8]))}.",
                hint="They may change the results. If you know that they do not, list them in `ignore`.",
            )

    def wrong(self, name: str, allowed: str, hint: str | None = None) -> InvalidInput:
        """Return the error for a field with an invalid value."""
        return InvalidInput(f"{self.where}: {name} should be {allowed}, not {_shown(self.data.get(name))}.", hint=hint)

    def _value(self, name: str, default: Any) -> Any:
        self._known.add(name)
        value = self.data.get(name)
        if value is None:
            if default is _REQUIRED:
                raise InvalidInput(f"{self.where}: {name} is missing.")
            return default
        return value


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
