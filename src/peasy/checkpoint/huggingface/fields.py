"""Reading a foreign config.json: each field is read, ignored by name, or refused by name; none is overlooked."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from peasy.errors import InvalidInput, did_you_mean

T = TypeVar("T")

MOST = 2**31 - 1
"""No size in a model is larger; a larger one is a damaged file."""

MOST_LAYERS = 1000

_REQUIRED: Any = object()


class Fields:
    """The fields of one config.json, which remembers what was asked for."""

    def __init__(self, data: Mapping[str, Any], where: str = "config.json") -> None:
        if not isinstance(data, Mapping):
            raise InvalidInput(f"{where} should be a table, not {_shown(data)}.")
        self.data, self.where = data, where
        self._known: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        self._known.add(name)
        return self.data.get(name) is not None

    def whole(self, name: str, default: Any = _REQUIRED, *, least: int = 1, most: int = MOST) -> Any:
        """A whole number between `least` and `most`."""
        value = self._value(name, default)
        if value is default:
            return value
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, default: Any = _REQUIRED, *, least: float = 0.0, most: float = 1e12) -> float:
        """A number between `least` and `most`."""
        value = self._value(name, default)
        if value is default:
            return value
        if type(value) not in (int, float) or not (least <= value <= most and math.isfinite(value)):
            raise self.wrong(name, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str, default: Any = _REQUIRED) -> bool:
        """True or false."""
        value = self._value(name, default)
        if value is not default and type(value) is not bool:
            raise self.wrong(name, "true or false")
        return value

    def choice(self, name: str, choices: Mapping[str, T], default: Any = _REQUIRED) -> T:
        """What stands for that word in `choices`."""
        value = self._value(name, default)
        if not isinstance(value, str) or value not in choices:
            near = did_you_mean(value, choices) if isinstance(value, str) else None
            raise self.wrong(name, f"one of {', '.join(choices)}", near)
        return choices[value]

    def ids(self, name: str) -> tuple[int, ...]:
        """One token id or a list of them; none at all is an empty tuple."""
        value = self._value(name, None)
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if len(listed) > 1000 or any(type(each) is not int or not 0 <= each <= MOST for each in listed):
            raise self.wrong(name, f"a token id from 0 to {MOST}, or a list of them")
        return tuple(listed)

    def table(self, name: str) -> "Fields":
        """A table inside, empty when the field is not there."""
        value = self._value(name, {})
        if not isinstance(value, Mapping):
            raise self.wrong(name, "a table")
        return Fields(value, f"{self.where}: {name}")

    def only(self, name: str, *allowed: Any, why: str) -> None:
        """Refuse the field unless it is absent, null or one of `allowed`."""
        value = self._value(name, None)
        if value is not None and not any(type(value) is type(each) and value == each for each in allowed):
            said = f"{self.where}: {name} is {_shown(value)}. {why}"
            raise InvalidInput(said, hint=f"Supported: {', '.join(map(_shown, allowed))}." if allowed else None)

    def ignore(self, names: str | Iterable[str]) -> None:
        """Fields that change no number peasy computes; a text is a list of names with spaces between."""
        self._known.update(names.split() if isinstance(names, str) else names)

    def close(self) -> None:
        """Refuse every field that nobody asked for."""
        unknown = [name for name in self.data if name not in self._known]
        if unknown:
            raise InvalidInput(
                f"{self.where} has settings that peasy does not know: {', '.join(map(str, unknown[:8]))}.",
                hint="They may change the numbers. If you know that they do not, name them in `ignore`.",
            )

    def wrong(self, name: str, allowed: str, hint: str | None = None) -> InvalidInput:
        """The error for a field with a value that cannot be."""
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
