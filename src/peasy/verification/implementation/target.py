"""Target: the function, class or module under test, called with NumPy arrays in this process.

`remote` has the same interface (describe, instantiate, call) for code in a separate process.
"""

import contextlib
import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np

from peasy.errors import InvalidInput

ResultPath = tuple[int | str, ...]
"""Indices and keys that lead to a part of a result."""

_MAX_LEAVES = 64
"""Larger tuples, lists and dicts in a result are not searched."""


@dataclass(frozen=True)
class SourceCode:
    """Source code of the target, if available; `first_line` is the line number of its first line."""

    text: str = ""
    first_line: int = 1

    def find_line(self, words: Sequence[str], last: bool = False) -> tuple[int | None, str]:
        """Return number and text of the first (or `last`) line with one of these words, in their order."""
        lines = list(enumerate(self.text.splitlines(), self.first_line))
        for word in words:
            for number, line in reversed(lines) if last else lines:
                if word in line.split("#")[0] and not line.strip().startswith(("def ", "class ", "import ", "from ")):
                    return number, line.strip()
        return None, ""


class SignatureParameter(NamedTuple):
    """A parameter of the target's signature."""

    name: str
    required: bool


@dataclass(frozen=True)
class TargetDescription:
    """Description of a target; `kind` is "function", "class" (of an nn.Module) or "module" (an instance)."""

    name: str
    kind: str
    parameters: tuple[SignatureParameter, ...]
    docstring: str = ""
    source: SourceCode = field(default_factory=SourceCode)
    library: str = ""
    int_attributes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ResultReference:
    """Argument: the result of an earlier call, or a part of it."""

    call: int
    path: ResultPath = ()


@dataclass(frozen=True)
class NamespaceArgument:
    """Argument: a config object with these attributes."""

    values: Mapping[str, object]


Arg = object
"""Argument of a call: an array, a ResultReference, a NamespaceArgument, or a plain value."""


@dataclass(frozen=True)
class TargetFault:
    """Exception in the target: the error, and the line in its file."""

    error: str
    line: int | None = None
    code: str = ""

    def summary(self) -> str:
        """Return the error with its line."""
        return f"line {self.line}: {self.error}" if self.line else self.error


@dataclass(frozen=True, eq=False)
class CallResult:
    """Result of a call: arrays and other objects by their path in it, or a fault."""

    call_index: int = 0
    arrays: Mapping[ResultPath, np.ndarray] = field(default_factory=dict)
    objects: Mapping[ResultPath, str] = field(default_factory=dict)
    fault: TargetFault | None = None


class Target(Protocol):
    """Interface of code under test."""

    def describe(self) -> TargetDescription:
        """Return its description."""

    def instantiate(
        self, kwargs: Mapping[str, Arg], seed: int
    ) -> tuple[TargetDescription, dict[str, np.ndarray]] | TargetFault:
        """Instantiate the class, or take the module as it is; return its forward's description and weights by name."""

    def call(
        self,
        args: Sequence[Arg],
        kwargs: Mapping[str, Arg],
        *,
        library: str = "torch",
        disable_dropout: bool = False,
    ) -> CallResult:
        """Call it. `disable_dropout` disables dropout."""


class LocalTarget:
    """Target in this process."""

    def __init__(self, target: Any, name: str = "", file: str = "") -> None:
        self.target, self.file = target, file or _file_of(target)
        self.name = name or getattr(target, "__name__", type(target).__name__)
        self.results: list[Any] = []

    def describe(self) -> TargetDescription:
        """Return its description, from signature and source."""
        kind = target_kind(self.target)
        if kind is None:
            actual = "a class, but no nn.Module" if inspect.isclass(self.target) else f"a {type(self.target).__name__}"
            hint = "Give a function or an nn.Module."
            raise InvalidInput(f"{self.name} is {actual}: it cannot be called.", hint=hint)
        function = self.target.forward if kind == "module" else self.target
        attributes = vars(self.target) if kind == "module" else {}
        int_attributes = {name: value for name, value in attributes.items() if type(value) is int}
        described = filter(None, (self.target, getattr(self.target, "forward", None)))
        docstring = "\n".join(filter(None, map(inspect.getdoc, described)))[:4000]
        parameters, source = _signature_parameters(function), _source_code(self.target)
        library = _array_library(self.target)
        return TargetDescription(self.name, kind, parameters, docstring, source, library, int_attributes)

    def instantiate(
        self, kwargs: Mapping[str, Arg], seed: int = 0
    ) -> tuple[TargetDescription, dict[str, np.ndarray]] | TargetFault:
        """Instantiate the module with weights from `seed`, in eval mode."""
        import torch

        try:
            if inspect.isclass(self.target):
                torch.manual_seed(seed)
                self.target = self.target(**{name: _to_argument(value, "torch", []) for name, value in kwargs.items()})
            self.target.eval()
        except Exception as error:
            return to_fault(error, self.file)
        return self.describe(), {
            name: tensor.detach().double().numpy()
            for name, tensor in self.target.state_dict().items()
            if tensor.is_floating_point()
        }

    def call(
        self,
        args: Sequence[Arg],
        kwargs: Mapping[str, Arg],
        *,
        library: str = "torch",
        disable_dropout: bool = False,
    ) -> CallResult:
        """Call it with arrays of the library it uses."""
        try:
            positional = [_to_argument(value, library, self.results) for value in args]
            keywords = {name: _to_argument(value, library, self.results) for name, value in kwargs.items()}
            with _quiet_call(library), _dropout_disabled() if disable_dropout else contextlib.nullcontext():
                result = self.target(*positional, **keywords)
        except Exception as error:
            return CallResult(fault=to_fault(error, self.file))
        self.results.append(result)
        leaves = [(path, leaf, _to_array(leaf)) for path, leaf in _leaves(result)]
        arrays = {path: array for path, _, array in leaves if array is not None}
        objects = {path: type(leaf).__name__ for path, leaf, array in leaves if array is None}
        return CallResult(len(self.results) - 1, arrays, objects)


def to_fault(error: BaseException, file: str) -> TargetFault:
    """Return an exception as a fault, with the last line of `file` that it passed."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return TargetFault(f"{type(error).__name__}: {error.msg}", error.lineno, (error.text or "").strip())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    message = f"{type(error).__name__}: {str(error).strip()[:300]}".removesuffix(": ")
    return TargetFault(message, frames[-1].lineno, frames[-1].line or "") if frames else TargetFault(message)


def _file_of(target: Any) -> str:
    """Return the file of a function, or of a module's forward."""
    code = getattr(target if inspect.isroutine(target) else getattr(target, "forward", None), "__code__", None)
    return getattr(code, "co_filename", "")


def target_kind(target: Any) -> str | None:
    """Return "function", "class" or "module"; None if it cannot be called."""
    modules: Any = getattr(sys.modules.get("torch.nn"), "Module", ())  # a module exists only if torch is imported
    if isinstance(target, modules):
        return "module"
    if inspect.isclass(target):
        return "class" if issubclass(target, modules) else None
    return "function" if callable(target) else None


def _signature_parameters(function: Any) -> tuple[SignatureParameter, ...]:
    """Return the named parameters of a signature; a C function has none, but its docstring begins with one."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        first = re.match(r"\s*\w+\(([^)]*)\)", inspect.getdoc(function) or "")
        parts = [part.strip() for part in first[1].split(",")] if first else []
        named = (part.partition("=") for part in parts if part not in ("", "*", "/"))
        return tuple(SignatureParameter(name.strip(), not equals) for name, equals, _ in named)
    parameters = (p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return tuple(SignatureParameter(p.name, p.default is p.empty) for p in parameters)


def _source_code(target: Any) -> SourceCode:
    if not inspect.isroutine(target):
        kind = target if inspect.isclass(target) else type(target)
        target = next((base for base in kind.__mro__ if "forward" in vars(base)), kind)
    try:
        lines, first = inspect.getsourcelines(target)
    except (OSError, TypeError):
        return SourceCode()
    return SourceCode("".join(lines), first)


def _array_library(target: Any) -> str:
    """Return "torch" or "numpy" if its file imports only one of them, else ""."""
    names = getattr(target, "__globals__", {})
    modules = {getattr(value, "__name__", "").partition(".")[0] for value in names.values() if inspect.ismodule(value)}
    libraries = modules & {"torch", "numpy"}
    return libraries.pop() if len(libraries) == 1 else ""


def _to_argument(value: Arg, library: str, results: list[Any]) -> Any:
    if isinstance(value, ResultReference):
        result = results[value.call]
        for key in value.path:
            result = result[key]
        return result
    if isinstance(value, NamespaceArgument):
        return SimpleNamespace(**value.values)
    if not isinstance(value, np.ndarray):
        return value
    array = value.astype(np.float32) if value.dtype == np.float64 else value
    if library == "numpy":
        return array.copy()
    import torch

    return torch.from_numpy(array.copy())


def _leaves(result: object, path: ResultPath = ()) -> Iterator[tuple[ResultPath, object]]:
    """Yield every nested part of a result with its path; a container comes before its parts."""
    if len(path) > 3:
        return
    if path or _to_array(result) is not None or not isinstance(result, tuple | list | dict):
        yield path, result
    if isinstance(result, tuple | list | dict) and len(result) <= _MAX_LEAVES:
        for key, value in result.items() if isinstance(result, dict) else enumerate(result):
            if isinstance(key, str) or not isinstance(result, dict):
                yield from _leaves(value, (*path, key))


def _to_array(leaf: Any) -> np.ndarray | None:
    if hasattr(leaf, "detach") and hasattr(leaf, "numpy"):
        leaf = leaf.detach().cpu()
        array: np.ndarray = leaf.double().numpy() if leaf.is_floating_point() else leaf.numpy()
        return array
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fiub":
        return leaf.astype(np.float64) if leaf.dtype.kind == "f" else leaf
    return None


@contextlib.contextmanager
def _quiet_call(library: str) -> Iterator[None]:
    """Run without gradients, warnings and extra threads."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if library == "numpy":
            yield
            return
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # inputs are tiny: more threads would only slow it down
        try:
            with torch.no_grad():
                yield
        finally:
            torch.set_num_threads(threads)


@contextlib.contextmanager
def _dropout_disabled() -> Iterator[None]:
    """Replace dropout by the identity, so that other mistakes can be found."""
    import torch
    from torch.nn import functional

    originals = functional.dropout, torch.dropout
    functional.dropout = lambda x, *_, **__: x
    torch.dropout = lambda x, *_, **__: x
    try:
        yield
    finally:
        functional.dropout, torch.dropout = originals
