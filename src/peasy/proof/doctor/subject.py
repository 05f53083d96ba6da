"""The patient: a function, a class or an object in this process, called with plain arrays and asked for plain arrays.

The same three questions (describe, make, call) are answered by a patient in a process of its own, see `remote`.
"""

import contextlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from peasy.errors import InvalidInput
from peasy.proof.doctor.mistake import Source

MOST_LEAVES = 64
"""More than so many parts of a result are not looked at."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of the patient's signature."""

    name: str
    required: bool
    default: Any = None
    hint: str = ""


@dataclass(frozen=True)
class Description:
    """What the patient is: "function", "class" (an nn.Module to be made) or "module" (one that is there)."""

    name: str
    kind: str
    parameters: tuple[Parameter, ...]
    told: str = ""
    source: Source = field(default_factory=Source)
    library: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Earlier:
    """An argument: what an earlier call gave back, or a part of it."""

    call: int
    path: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Named:
    """An argument: an object with these attributes, as models take their settings."""

    values: Mapping[str, Any]


@dataclass(frozen=True)
class Fault:
    """What went wrong inside the patient: the error, and the line of the patient's file."""

    error: str
    line: int | None = None
    code: str = ""

    def says(self) -> str:
        """In one sentence."""
        return f"line {self.line}: {self.error}" if self.line else self.error


@dataclass(frozen=True, eq=False)
class Answer:
    """What a call gave back: arrays by their path in it, other things by their kind; or a fault."""

    call: int = 0
    arrays: Mapping[tuple[Any, ...], np.ndarray] = field(default_factory=dict)
    objects: Mapping[tuple[Any, ...], str] = field(default_factory=dict)
    fault: Fault | None = None


class Patient(Protocol):
    """Who can be examined."""

    def describe(self) -> Description:
        """What it is."""

    def make(self, kwargs: Mapping[str, Any], seed: int) -> tuple[Description, dict[str, np.ndarray]] | Fault:
        """Make the module of a class, or take the one that is there: its forward, and its weights by name."""

    def call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, library: str = "torch", still: bool = False
    ) -> Answer:
        """Call it. `still` switches dropout off by force."""


class Subject:
    """A patient in this very process."""

    def __init__(self, thing: Any, name: str = "", file: str = "") -> None:
        self.thing, self.file = thing, file or _file_of(thing)
        self.name = name or getattr(thing, "__name__", type(thing).__name__)
        self.results: list[Any] = []

    def describe(self) -> Description:
        """What it is, from its signature and its text."""
        kind = kind_of(self.thing)
        if kind is None:
            said = "a class, but no nn.Module" if inspect.isclass(self.thing) else f"a {type(self.thing).__name__}"
            raise InvalidInput(f"{self.name} is {said}: it cannot be called.", hint="Give a function or an nn.Module.")
        called = self.thing.forward if kind == "module" else self.thing
        return Description(
            self.name, kind, parameters_of(called), _told(self.thing), _source(self.thing), _library(self.thing),
            {name: value for name, value in vars(self.thing).items() if type(value) is int} if kind == "module" else {},
        )  # fmt: skip

    def make(self, kwargs: Mapping[str, Any], seed: int = 0) -> tuple[Description, dict[str, np.ndarray]] | Fault:
        """Make the module with weights from `seed`, out of training, with weights large enough to be felt."""
        import torch

        try:
            if inspect.isclass(self.thing):
                torch.manual_seed(seed)
                self.thing = self.thing(**{name: _given(value, "torch", []) for name, value in kwargs.items()})
            self.thing.eval()
        except Exception as error:
            return self._fault(error)
        return self.describe(), {
            name: tensor.detach().double().numpy()
            for name, tensor in self.thing.state_dict().items()
            if tensor.is_floating_point()
        }

    def call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, library: str = "torch", still: bool = False
    ) -> Answer:
        """Call it with arrays of the library it uses."""
        try:
            given = [_given(value, library, self.results) for value in args]
            named = {name: _given(value, library, self.results) for name, value in kwargs.items()}
            with _quiet(library), _still() if still else contextlib.nullcontext():
                result = self.thing(*given, **named)
        except Exception as error:
            return Answer(fault=self._fault(error))
        self.results.append(result)
        arrays, objects = {}, {}
        for path, leaf in _leaves(result):
            array = _array(leaf)
            if array is None:
                objects[path] = type(leaf).__name__
            else:
                arrays[path] = array
        return Answer(len(self.results) - 1, arrays, objects)

    def _fault(self, error: BaseException) -> Fault:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.file]
        said = f"{type(error).__name__}: {str(error).strip()[:300]}"
        return Fault(said, frames[-1].lineno, frames[-1].line or "") if frames else Fault(said)


def _file_of(thing: Any) -> str:
    """The file of a function, or of a module's forward."""
    code = getattr(thing if inspect.isroutine(thing) else getattr(thing, "forward", None), "__code__", None)
    return getattr(code, "co_filename", "")


def kind_of(thing: Any) -> str | None:
    """function, class or module; None = nothing that can be called."""
    modules: Any = getattr(sys.modules.get("torch.nn"), "Module", ())  # whoever has a module has imported torch
    if isinstance(thing, modules):
        return "module"
    if inspect.isclass(thing):
        return "class" if issubclass(thing, modules) else None
    return "function" if callable(thing) else None


def parameters_of(called: Any) -> tuple[Parameter, ...]:
    """The parameters that can be given, with what is known of each."""
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return _written_parameters(called)
    found = []
    for each in signature.parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        required = each.default is each.empty
        plain = isinstance(each.default, bool | int | float | str | type(None))
        hint = "" if each.annotation is each.empty else str(getattr(each.annotation, "__name__", each.annotation))
        found.append(Parameter(each.name, required, None if required or not plain else each.default, hint))
    return tuple(found)


def _written_parameters(called: Any) -> tuple[Parameter, ...]:
    """A function of C has no signature; its documentation begins with one."""
    first = re.match(r"\s*\w+\(([^)]*)\)", inspect.getdoc(called) or "")
    parts = [part.strip() for part in first[1].split(",")] if first else []
    return tuple(
        Parameter(part.partition("=")[0].strip(), "=" not in part) for part in parts if part not in ("", "*", "/")
    )


def _told(thing: Any) -> str:
    forward = getattr(thing, "forward", None)
    return "\n".join(filter(None, [inspect.getdoc(thing), inspect.getdoc(forward) if forward else None]))[:4000]


def _source(thing: Any) -> Source:
    if not inspect.isroutine(thing):
        kind = thing if inspect.isclass(thing) else type(thing)
        thing = next((each for each in kind.__mro__ if "forward" in vars(each)), kind)
    try:
        lines, first = inspect.getsourcelines(thing)
    except (OSError, TypeError):
        return Source()
    return Source("".join(lines), first)


def _library(thing: Any) -> str:
    """What its file imports, where that tells: "torch" or "numpy"; "" where both or neither."""
    held = getattr(thing, "__globals__", {})
    modules = {getattr(value, "__name__", "").partition(".")[0] for value in held.values() if inspect.ismodule(value)}
    known = modules & {"torch", "numpy"}
    return known.pop() if len(known) == 1 else ""


def _given(value: Any, library: str, results: list[Any]) -> Any:
    if isinstance(value, Earlier):
        found = results[value.call]
        for step in value.path:
            found = found[step]
        return found
    if isinstance(value, Named):
        return SimpleNamespace(**value.values)
    if not isinstance(value, np.ndarray):
        return value
    array = value.astype(np.float32) if value.dtype == np.float64 else value
    if library == "numpy":
        return array.copy()
    import torch

    return torch.from_numpy(array.copy())


def _leaves(result: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every part of a result, parts of parts too; a whole comes before its parts."""
    if len(path) > 3:
        return
    if path or _array(result) is not None or not isinstance(result, tuple | list | dict):
        yield path, result
    if isinstance(result, tuple | list) and len(result) <= MOST_LEAVES:
        for index, each in enumerate(result):
            yield from _leaves(each, (*path, index))
    elif isinstance(result, dict) and len(result) <= MOST_LEAVES:
        for name, each in result.items():
            if isinstance(name, str):
                yield from _leaves(each, (*path, name))


def _array(leaf: Any) -> np.ndarray | None:
    if hasattr(leaf, "detach") and hasattr(leaf, "numpy"):
        leaf = leaf.detach().cpu()
        return leaf.double().numpy() if leaf.is_floating_point() else leaf.numpy()
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fiub":
        return leaf.astype(np.float64) if leaf.dtype.kind == "f" else leaf
    return None


@contextlib.contextmanager
def _quiet(library: str) -> Iterator[None]:
    """No gradients, no warnings: neither is what was asked for."""
    import warnings

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if library == "numpy":
            yield
            return
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # what is asked is tiny: threads would only wait for each other
        try:
            with torch.no_grad():
                yield
        finally:
            torch.set_num_threads(threads)


@contextlib.contextmanager
def _still() -> Iterator[None]:
    """Dropout lets everything through, so that what else is wrong can be seen."""
    import torch
    from torch.nn import functional

    held = functional.dropout, torch.dropout
    functional.dropout = lambda x, *_, **__: x
    torch.dropout = lambda x, *_, **__: x
    try:
        yield
    finally:
        functional.dropout, torch.dropout = held
