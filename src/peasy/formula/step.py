"""Named steps of a formula: caption (name, TeX, axes, one sentence) and arrays."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Self

from peasy.display import DisplayMixin
from peasy.errors import lookup
from peasy.parameters import Record

Array = Any
"""An array of any array-API library: NumPy, torch, array-api-strict; where a function converts, also nested lists."""

Namespace = ModuleType
"""The functions of an array-API library."""

# Axis names, the labels of all displayed arrays. Within one computation, axes of the same name have the same size.
BATCH = "batch"
HEAD = "head"
TIME = "time"
TOKEN = "token"
QUERY = "query"
KEY = "key"
PAIR = "pair"
D_MODEL = "d_model"
D_SOURCE = "d_source"
D_QUERY = "d_query"
D_KEY = "d_key"
D_VALUE = "d_value"
D_CONCAT = "d_concat"
D_OUTPUT = "d_output"

_LEADING: dict[int, tuple[str, ...]] = {0: (), 1: (BATCH,), 2: (BATCH, HEAD)}
"""Leading axes before those of a step, by their number."""


class FormulaStep(Record):
    """Caption of a step: name, TeX, one sentence and axes; used by every output format."""

    name: str
    tex: str
    description: str
    axes: tuple[str, ...]

    def axes_of(self, array: Array) -> tuple[str, ...]:
        """Return the names of all axes of `array`, including leading ones."""
        return _LEADING[array.ndim - len(self.axes)] + self.axes


StepArrays = tuple[tuple[FormulaStep, Array], ...]


class Steps(DisplayMixin, Mapping[str, Array]):
    """Arrays of a computation by step name, in order, each with its caption.

    `steps.scores` and `steps["scores"]` are the array; `steps.step("scores")` is its caption.
    """

    def __init__(self, *step_arrays: tuple[FormulaStep, Array]) -> None:
        self._arrays = {step.name: array for step, array in step_arrays}
        self._steps = {step.name: step for step, _ in step_arrays}

    def step(self, name: str) -> FormulaStep:
        """Return the caption of a step."""
        return lookup(name, self._steps, "step")

    def step_arrays(self) -> StepArrays:
        """Return all steps with their arrays, in order."""
        return tuple((self._steps[name], array) for name, array in self._arrays.items())

    def with_steps(self, *, before: StepArrays = (), after: StepArrays = ()) -> Self:
        """Return the steps with others before and after them."""
        return type(self)(*before, *self.step_arrays(), *after)

    def map_arrays(self, change: Callable[[Array], Array]) -> Self:
        """Return the steps with `change` applied to every array; an array used twice is changed once."""
        changed: dict[int, Array] = {}
        for array in self._arrays.values():
            if id(array) not in changed:
                changed[id(array)] = change(array)
        return type(self)(*((step, changed[id(array)]) for step, array in self.step_arrays()))

    def with_captions(self, changes: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the steps with fields of some captions changed, by step name."""
        return type(self)(*((replace(step, **changes.get(step.name, {})), array) for step, array in self.step_arrays()))

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __getattr__(self, name: str) -> Array:
        try:
            return self.__dict__["_arrays"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {'x'.join(map(str, a.shape))}" for name, a in self.items())
        return f"{type(self).__name__}({shapes})"
