"""Judgement of a call so far: mistakes with their line, conventions, and what is not understood."""

import ast
import linecache
import re
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from peasy.verification.implementation.core import Array
from peasy.verification.implementation.reading import Reading
from peasy.verification.implementation.trace import Op, Place

_Statement = TypeVar("_Statement", bound=ast.stmt)

TOLERANCE, _HALF_TOLERANCE = 2e-4, 1e-2
"""Of results of order 1, in float32 and in half precision."""


@dataclass
class Judgement:
    """Findings so far: mistakes by name with their place, conventions, and reasons why nothing can be said."""

    mistakes: dict[str, Place | None] = field(default_factory=dict)
    cautions: dict[str, Place | None] = field(default_factory=dict)
    conventions: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    difference: float = 0.0
    compared: int = 0
    scale: float = 1.0
    """Number by which the scores are multiplied, and the width of queries and keys, where it is not 1/√d_k."""
    d_key: int = 0
    axes: int = 0
    """Axes of the inputs, where each row of queries, keys and values belongs to one token of them."""
    heads: int = 0
    """Number of score matrices: those of all heads of all sequences."""
    mixed: bool = False
    """Whether some row of queries, keys or values belongs to several tokens."""

    def mistake(self, name: str, place: Place | None = None) -> None:
        """Add a mistake once; the first place that is known counts."""
        self.mistakes[name] = self.mistakes.get(name) or place

    def caution(self, name: str, place: Place | None = None) -> None:
        """Add a caution once."""
        self.cautions.setdefault(name, place)

    def convention(self, text: str) -> None:
        """Add a convention once."""
        if text not in self.conventions:
            self.conventions.append(text)

    def take(self, other: "Judgement") -> None:
        """Add the mistakes and comparisons of another judgement, and how its heads share keys."""
        for name, place in other.mistakes.items():
            self.mistake(name, place)
        for text in other.conventions:
            if "grouped-query" in text:
                self.convention(text)
        self.compared += other.compared
        self.difference = max(self.difference, other.difference)

    def not_understood(self, text: str) -> None:
        """Add a reason why something was not compared."""
        if text not in self.unknown:
            self.unknown.append(text)


@dataclass(frozen=True)
class Context:
    """What is known besides the trace: width of the model, roles of the inputs, hints from names."""

    model_width: int = 0
    input_roles: dict[str, str] = field(default_factory=dict)
    named_causal: bool = False
    free_scale: bool = False
    function: bool = False
    weights: tuple[str, ...] = ()
    why_unscaled: str = ""
    scale_argument: bool = False


def place_of(op: Op | None) -> Place | None:
    """Return the line of an operation."""
    return None if op is None else op.place


def tolerance_of(reading: Reading) -> float:
    """Return the tolerance of the precision in which the weights are computed."""
    half = any("float16" in str(getattr(op.outputs[0], "dtype", "")) for op in reading.core.path if op.outputs)
    return _HALF_TOLERANCE if half else TOLERANCE


def close_to(a: Array, b: Array, tolerance: float = TOLERANCE) -> bool:
    """Return whether two arrays are equal up to rounding, by default that of float32."""
    a, b = np.nan_to_num(a), np.nan_to_num(b)
    return a.shape == b.shape and bool(np.all(np.abs(a - b) <= tolerance * max(1.0, float(np.abs(a).max()))))


def heads_of(reading: Reading) -> Array | None:
    """Return the matrices `n` of each sequence, in order: `[sequence, head]`; None if heads are not matrices."""
    first = reading.query.tokens[:, 0]
    if len(np.unique(reading.query.tokens[0])) != reading.query.tokens.shape[1]:
        return None
    axes = [axis for axis in range(len(reading.query.shape)) if axis not in reading.attended]
    if len(reading.query.shape) == 3:  # heads are an axis of the input
        axes = [axis for axis in axes if axis == 0]
    batch = np.zeros(len(first), dtype=np.int64)
    for axis in axes:
        batch = batch * reading.query.shape[axis] + reading.query.positions[axis][:, 0]
    groups = [np.flatnonzero(batch == each) for each in np.unique(batch)]
    return np.array(groups) if len({len(each) for each in groups}) == 1 else None


def function_source(place: Place | None) -> str:
    """Return the statements of the innermost function around a line, without comments and docstrings."""
    return "\n".join(
        ast.unparse(each) for node in _around(place, ast.FunctionDef)[-1:] for each in node.body
        if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    )  # fmt: skip


def statement(place: Place | None) -> str:
    """Return the whole statement that a line belongs to."""
    return "".join(ast.unparse(node) for node in _around(place, ast.stmt)[-1:])


def parameters_around(place: Place | None) -> list[str]:
    """Return the names of the parameters of the innermost function around a line."""
    return [each.arg for node in _around(place, ast.FunctionDef)[-1:] for each in node.args.args]


def _around(place: Place | None, kind: type[_Statement]) -> list[_Statement]:
    """Return the statements of a kind around a line, the innermost last."""
    if place is None:
        return []
    try:
        tree = ast.parse("".join(linecache.getlines(place.file)))
    except SyntaxError:
        return []
    nodes = [node for node in ast.walk(tree) if isinstance(node, kind)]
    found = [node for node in nodes if node.lineno <= place.line <= (node.end_lineno or 0)]
    return sorted(found, key=lambda node: node.lineno)


def created_with(place: Place, names: list[str], files: list[str]) -> Place | None:
    """Return the one line of some files that creates an object whose constructor keeps an argument used here."""
    classes = _around(place, ast.ClassDef)[-1:]
    kept = {f"self.{name}" for node in classes for name in re.findall(r"self\.(\w+) = \1\b", ast.unparse(node))}
    calls = [
        Place(file, node.lineno) for file in dict.fromkeys(files) if kept & {*names}
        for node in ast.walk(ast.parse("".join(linecache.getlines(file))))
        if isinstance(node, ast.Call) and (node.args or node.keywords)
        and ast.unparse(node.func).rpartition(".")[2] == classes[0].name
    ]  # fmt: skip
    return calls[0] if len(calls) == 1 else None


def line_that_sets(place: Place | None, used: str, value: str) -> Place | None:
    """Return the one line of a class or function that gives a name its value, if this statement uses it; else None."""
    for name in re.findall(used, statement(place)) if place else ():
        made, file = re.compile(rf"\s*{re.escape(name)}\s*=(?!=){value}"), place.file if place else ""
        around = _around(place, ast.ClassDef if name.startswith("self.") else ast.FunctionDef)
        start, end = (around[-1].lineno, around[-1].end_lineno or 0) if around else (1, len(linecache.getlines(file)))
        lines = [number for number in range(start, end + 1) if made.match(linecache.getline(file, number))]
        if len(lines) == 1:
            return Place(file, lines[0])
    return None
