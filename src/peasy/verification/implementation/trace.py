"""Trace of a call: every operation with its inputs, its result, and the file and line that asked for it.

Torch operations are recorded below autograd (a dispatch mode), so that einsum, `@`, nn.Linear and fused attention all
arrive as the same few products, views and element-wise operations. NumPy operations: `numpy_trace`.
"""

import itertools
import linecache
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

INPUT, PARAMETER, CONSTANT = "input", "parameter", "constant"
"""Names of the records of tensors that no recorded operation made."""

PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "matmul"})
LAYOUTS = frozenset(
    [
        "view", "_unsafe_view", "reshape", "_reshape_alias", "transpose", "permute", "t", "unsqueeze", "squeeze",
        "expand", "clone", "contiguous", "slice", "select", "split", "split_with_sizes", "unbind", "chunk", "alias",
        "detach", "_to_copy", "copy", "lift_fresh", "repeat", "index_select", "index", "gather", "cat", "stack",
        "constant_pad_nd", "flip", "roll", "as_strided", "unfold", "tile", "repeat_interleave", "narrow", "assemble",
        "copy_", "take", "to", "swapaxes", "movedim",
    ]
)  # fmt: skip
"""Operations that only copy or move numbers."""

_Folders = tuple[str, ...]


def _library_folders() -> _Folders:
    """Folders whose frames are never the user's line."""
    loaded = (
        sys.modules.get(name)
        for name in ("torch", "numpy", "einops", "functorch", "array_api_compat", "peasy.formula", "peasy.verification")
    )
    files = [file for module in loaded if (file := getattr(module, "__file__", None))]
    return tuple(os.path.dirname(file) + os.sep for file in files)


@dataclass(frozen=True, order=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    @property
    def code(self) -> str:
        """The text of the line, stripped."""
        return linecache.getline(self.file, self.line).strip()


@dataclass(eq=False)
class Op:
    """One recorded operation: `inputs` are (record, output number) of its tensor arguments, `values` what they were."""

    index: int
    name: str
    inputs: tuple[tuple[int, int], ...] = ()
    values: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    roots: frozenset[str] = frozenset()
    place: Place | None = None
    callers: tuple[Place, ...] = ()
    replay: Callable[[Mapping[int, Any]], Any] | None = None
    scalars: tuple[Any, ...] = ()
    root: str = ""


@dataclass(eq=False)
class Trace:
    """All operations of one call, in order, and the arrays of its result, with their records.

    `events` are dropout and random numbers, with their place.
    """

    ops: list[Op] = field(default_factory=list)
    results: list[tuple[Any, tuple[int, int] | None]] = field(default_factory=list)
    events: list[tuple[str, Place | None]] = field(default_factory=list)

    def ancestors(self, index: int, stop: frozenset[str] = frozenset()) -> Iterator[Op]:
        """Yield the operations that a record depends on, itself included; not past operations named in `stop`."""
        pending, seen = [index], {index}
        while pending:
            op = self.ops[pending.pop()]
            yield op
            sources = {source for source, _ in op.inputs} - seen if op.name not in stop else set()
            seen |= sources
            pending += sources


class OperationRecorder:
    """Operations of one call, in order; `overrides` replace results by operation index."""

    def __init__(self, overrides: Mapping[int, Callable[[Any], Any]] | None = None) -> None:
        self.trace, self.overrides, self.skipped = Trace(), overrides or {}, _library_folders()

    def override(self, result: Any) -> object:
        """Return what the next operation gives."""
        return self.overrides.get(len(self.trace.ops), lambda given: given)(result)

    def add_root(self, kind: str, name: str, output: object) -> int:
        """Add an array that no recorded operation made; return its index."""
        ops = self.trace.ops
        roots = frozenset({f"{kind}:{name}"}) if kind in (INPUT, PARAMETER) else frozenset()
        ops.append(Op(len(ops), kind, (), (), (output,), roots, root=name))
        return len(ops) - 1

    def add(
        self, name: str, sources: tuple[tuple[int, int], ...], values: tuple[Any, ...], outputs: tuple[Any, ...],
        places: tuple[Place | None, tuple[Place, ...]], replay: Any = None, scalars: tuple[Any, ...] = (),
    ) -> int:  # fmt: skip
        """Add an operation; return its index."""
        ops = self.trace.ops
        roots = frozenset[str]().union(*(ops[source].roots for source, _ in sources))
        ops.append(Op(len(ops), name, sources, values, outputs, roots, *places, replay, scalars))
        return len(ops) - 1


def user_places(skipped: _Folders) -> tuple[Place | None, tuple[Place, ...]]:
    """Return the innermost line outside of the libraries, and the lines that called it."""
    frame: Any = sys._getframe(2)
    places: list[Place] = []
    while frame is not None and len(places) < 4:
        file = frame.f_code.co_filename
        if not file.startswith(skipped) and not file.startswith("<"):
            places.append(Place(file, frame.f_lineno))
        elif places and file.startswith(skipped[-1]):
            break  # the examination itself
        frame = frame.f_back
    return (places[0], tuple(places[1:])) if places else (None, ())


def to_float(value: Any) -> np.ndarray:
    """Return a tensor or array as float64."""
    if hasattr(value, "detach"):
        value = value.detach()
        value = value.double().numpy() if not value.is_complex() else np.abs(value.numpy())
    return np.asarray(value, dtype=np.float64)


def in_library_of(result: Any, array: np.ndarray) -> object:
    """Return an array with the dtype of a result; a tensor if the result is one."""
    if not hasattr(result, "detach"):
        return array.astype(result.dtype)
    import torch

    return torch.from_numpy(array).to(result.dtype)


class NotRepeatable(Exception):
    """The code did other operations than in the first call, so that records cannot be compared."""


def leaves(result: Any, depth: int = 0) -> Iterator[object]:
    """Yield the tensors and arrays of a result: tuples, lists, dictionaries and objects with `last_hidden_state`."""
    if hasattr(result, "shape") and hasattr(result, "dtype"):
        yield result
    elif isinstance(result, Mapping) and depth < 4:
        for value in result.values():
            yield from leaves(value, depth + 1)
    elif isinstance(result, list | tuple) and depth < 4 and len(result) <= 64:
        for value in result:
            yield from leaves(value, depth + 1)
    elif depth < 2 and hasattr(result, "__dict__"):
        yield from (leaf for value in list(vars(result).values())[:16] for leaf in leaves(value, depth + 1))


def is_number(value: object) -> bool:
    """Return whether this is a plain finite or infinite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def flatten(values: Iterable[object]) -> Iterator[Any]:
    """Yield nested arguments one by one."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flatten(value)
        else:
            yield value


def replayer(
    function: Callable[..., Any], args: Any, kwargs: Any, kind: type, plain: Callable[[Any], object]
) -> Callable[[Mapping[int, Any]], Any]:
    """Return a function that repeats an operation with other arrays, by number of the array argument."""

    def replay(replaced: Mapping[int, object]) -> object:
        numbers = itertools.count()

        def swap(value: object) -> object:
            if isinstance(value, list | tuple):
                return type(value)(swap(each) for each in value)
            return replaced.get(next(numbers), plain(value)) if isinstance(value, kind) else value

        return function(*[swap(each) for each in args], **{key: swap(each) for key, each in kwargs.items()})

    return replay
