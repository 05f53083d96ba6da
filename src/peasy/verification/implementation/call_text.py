"""Texts of calls: as they are written in `--call`, and calls that failed."""

import ast
import contextlib
import dataclasses
import inspect
import itertools
import linecache
import os
import re
import textwrap
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peasy.errors import InvalidInput
from peasy.verification.implementation.arguments import SIZES, ConfigGuess, roles_of, signature_of, source_of
from peasy.verification.implementation.names import role_of

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


_PEASY = str(Path(__file__).parents[2]) + os.sep
"""Folder of peasy itself, whose lines are not the user's."""


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an error in files of the user."""
    return [
        frame for frame in traceback.extract_tb(error.__traceback__)
        if not re.search("site-packages|^<", frame.filename) and not frame.filename.startswith(_PEASY)
    ]  # fmt: skip


def failure(error: BaseException, call: str, file: str) -> CallFailure:
    """Describe an exception of the examined code: the innermost line in its own file, else in any user file."""
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return CallFailure(call, text, error.filename, error.lineno, (error.text or "").strip())
    frames = user_frames(error)
    own = [frame for frame in frames if frame.filename == file] or frames
    if not own:
        return CallFailure(call, text)
    last = own[-1]
    code = linecache.getline(last.filename, last.lineno or 0).strip()
    return CallFailure(call, text, last.filename, last.lineno, code)


def created_text(cls: type, arguments: Mapping[str, object]) -> str:
    """Return the expression that creates an object, and the method to call if the object itself cannot be called."""
    name = _call_name(cls)
    callable_itself = name == "__call__" or any("__call__" in vars(base) for base in cls.__mro__)
    method = "" if callable_itself and name in ("forward", "__call__", "call", "") else f".{name}"
    return f"{cls.__name__}({', '.join(f'{name}={short_text(value)}' for name, value in arguments.items())}){method}"


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
    long = getattr(value, "ndim", 0) or len(repr(value)) >= 40  # printing a tensor takes long
    return f"{type(value).__name__}(...)" if long else repr(value)


def array_name(role: str) -> str:
    """Return the array in `--call` that has a role."""
    return next((short for short, known in CALL_NAMES.items() if known == role), "None")


def shown_text(arguments: Mapping[str, str]) -> str:
    """Return arguments as they are written in `--call`: without their name where that is the array's, at first."""
    named = len(list(itertools.takewhile(lambda item: item[0] == item[1], arguments.items())))
    return ", ".join(name if i < named else f"{name}={value}" for i, (name, value) in enumerate(arguments.items()))


def _call_name(cls: type) -> str:
    """Return the name of the method that runs attention: forward, a call, or a public one that takes its arrays."""
    own = [base for base in cls.__mro__ if base.__module__ != "torch.nn.modules.module"]
    for name in ("forward", "__call__", "call"):
        if any(name in vars(base) for base in own):
            return name
    for name, method in vars(cls).items():
        parameters = signature_of(method) if inspect.isfunction(method) else []
        roles = {role_of(p.name) for p in parameters}
        attends = "att" in name and {"query", "source"} <= {*roles_of(parameters).values()}
        named = attends or (re.search("att|compute|apply|forward|run", name) and "x" in roles)
        if not name.startswith("_") and (named or {"query", "key"} <= roles):
            return name
    return ""


def call_method(cls: type) -> Any:
    """Return the function of the method that runs attention, None if there is none."""
    name = _call_name(cls)
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def call_of(made: object) -> Any:
    """Return what runs attention: the object itself, or its method."""
    name = _call_name(type(made))
    return getattr(made, name) if name not in ("", "__call__") else made


_OTHER_LIBRARIES = {
    "tensorflow",
    "keras",
    "jax",
    "flax",
    "mxnet",
    "paddle",
    "mlx",
    "tinygrad",
    "cupy",
    "haiku",
    "chainer",
    "mindspore",
    "oneflow",
}


def call_not_found(
    target: Any, name: str, failures: list[CallFailure], notes: list[str], others: Sequence[str] = ()
) -> InvalidInput:
    """Return the error when no call worked: the attempt that came furthest, its line, and one line to run next.

    `others` are the functions and classes of the same file that look like attention.
    """
    missing = next((note.rpartition(": ")[2].rstrip(".") for note in notes if note.startswith("Not installed")), "")
    other = sorted(_OTHER_LIBRARIES & {*missing.split(", ")})
    if other:
        message = f"{name} could not be called: it is code for {other[0]}."
        return InvalidInput(message, hint="prove examines PyTorch and NumPy code.")
    if not failures:
        return _takes_no_arrays(target, name, missing)
    typed = len({one.call for one in failures}) == 1  # its first form has the shapes that the hint names
    first = failures[0] if typed else max(failures, key=lambda one: ("not installed" in one.error, one.line or 0))
    where = f" Line {first.line}: {first.code}" if first.line else ""
    absent = re.search(r"but (\S+) is not installed", first.error)
    bases = [base.__name__ for base in getattr(target, "__mro__", ())]
    if re.search("'ellipsis'|ellipsis object|NotImplemented", first.error):
        hint = f"It is not finished: complete line {first.line}, and run it again."
    elif absent or (missing and "AnyModule" in bases):  # its base class has a stand-in
        hint = f"Install {absent[1] if absent else missing}, and run it again."
    elif others and name not in others:
        hint = f"{name} does not look like attention. In the same file do: {', '.join(others)}. Name one of them."
    else:
        hint = _call_to_complete(first, target)
    return InvalidInput(f"{name} could not be called: {first.call} raised {first.error}.{where}", hint=hint)


def _takes_no_arrays(target: Any, name: str, missing: str) -> InvalidInput:
    message = f"{name} does not look like attention: it takes no arrays that are known here."
    own = vars(target) if inspect.isclass(target) else {}
    methods = [n for n, v in own.items() if inspect.isfunction(v) and not n.startswith("_")]
    if methods and not _call_name(target):
        message = (
            f"{name} does not look like attention: it has no forward or __call__, and no method that takes arrays."
        )
        return InvalidInput(message, hint=f'Give the call: --call "{name}(...).{methods[0]}(x)"')
    return InvalidInput(message, hint=f"Install {missing}" if missing else f'Give the call: --call "{name}(q, k, v)"')


def _call_to_complete(failed: CallFailure, target: Any) -> str:
    """Return the `--call` that would work: what is not known is left as dots, and the names that it may use."""
    sizes = SIZES[0]
    shape = f"[{sizes.batch}, {sizes.time}, {sizes.d_model}]"
    call = failed.call.partition(" as in ")[0].replace("=None", "=...")
    ask = "Give the call, with what fits in place of dots" if "=..." in call else "Change what does not fit"
    uses = _uses(target, re.findall(r"(\w+)=[.]{3}", call))
    return (
        f'{ask}: --call "{call}"\n{uses}'
        f"In it q, k, v, x and source are arrays {shape}, or of other shapes where these do not fit. Write "
        "x[0] or x.transpose(0, 1) for parts of them, torch.zeros(5, 5) or settings(name=value) for what is missing."
    )


def _uses(target: Any, names: list[str]) -> str:
    """Return a line for each argument that is not known: the first statement that uses it."""
    lines = dict[str, str]()
    for function in [target.__init__, call_method(target)] if inspect.isclass(target) else [target]:
        with contextlib.suppress(SyntaxError):
            for node in ast.walk(ast.parse(textwrap.dedent(source_of(function)))):
                if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef):
                    used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                    lines = {name: ast.unparse(node).splitlines()[0] for name in names if name in used} | lines
    return "".join(f"{name} is used in: {lines[name]}\n" for name in names if name in lines)
