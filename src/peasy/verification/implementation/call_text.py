"""Texts of calls: as they are written in `--call`, and calls that failed."""

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from peasy.verification.implementation.arguments import ConfigGuess

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


def created_text(cls: type, arguments: Mapping[str, Any]) -> str:
    """Return the expression that creates an object."""
    return f"{cls.__name__}({', '.join(f'{name}={short_text(value)}' for name, value in arguments.items())})"


def short_text(value: Any) -> str:
    """Return an argument as it is written, or its type."""
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


def array_name(role: str) -> str:
    """Return the array in `--call` that has a role."""
    return next((short for short, known in CALL_NAMES.items() if known == role), "None")


def shown_text(arguments: Mapping[str, str]) -> str:
    """Return arguments as they are written in `--call`: without their name where that is the array's, at first."""
    named = len(list(itertools.takewhile(lambda item: item[0] == item[1], arguments.items())))
    return ", ".join(name if i < named else f"{name}={value}" for i, (name, value) in enumerate(arguments.items()))


def call_method(cls: type) -> Any:
    """Return the method that a call of an object runs."""
    return next((vars(b)[n] for b in cls.__mro__ for n in ("forward", "__call__", "call") if n in vars(b)), None)
