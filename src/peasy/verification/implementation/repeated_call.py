"""Repeated call of examined code, with other inputs each time, traced or not."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peasy.verification.implementation.core import MIXED, NO_TOKEN, Array
from peasy.verification.implementation.trace import INPUT, PARAMETER, NotRepeatable, Op, Trace, leaves, to_float

Overrides = Mapping[int, Callable[[Any], Any]]


@dataclass(eq=False)
class RepeatedCall:
    """A call: `run(values)` calls the code with these inputs, by name. `constants` are values passed as they are."""

    run: Callable[[Mapping[str, Any]], Any]
    inputs: dict[str, Array]
    library: str = "torch"
    parameters: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, Any] = field(default_factory=dict)
    buffer_ops: dict[int, list[Op]] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    owner: Any = None
    statistics: dict[int, tuple[Any, Any]] = field(default_factory=dict, init=False)

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights, without biases and gains, by name."""
        arrays = self.parameters
        if self.library == "numpy":
            from peasy.verification.implementation.numpy_trace import arrays_of, is_weight

            arrays = arrays | {name: array for name, array in arrays_of(self.owner).items() if is_weight(name)}
        return {name: tuple(array.shape) for name, array in arrays.items() if array.ndim > 1}

    def trace(self, inputs: Mapping[str, Array] | None = None, overrides: Overrides | None = None) -> Trace:
        """Call the code and record its operations."""
        if self.library == "numpy":
            from peasy.verification.implementation.numpy_trace import numpy_call

            with quiet():
                values = {**self.inputs, **(inputs or {})}
                return numpy_call(self.run, values, self.constants, overrides or {}, self.parameters, self.owner)
        from peasy.verification.implementation.torch_trace import torch_call

        tensors = self.tensors({**self.inputs, **(inputs or {})})
        roots = {id(tensor): (INPUT, name) for name, tensor in tensors.items()}
        roots |= {id(tensor): (PARAMETER, name) for name, tensor in self.parameters.items()}
        roots |= {id(tensor): ("buffer", name) for name, tensor in self.buffers.items()}
        with quiet():
            if not inputs and not overrides:
                self.statistics.clear()
            return torch_call(lambda: self.run({**tensors, **self.constants}), roots, overrides or {}, self.statistics)

    def plain(
        self, inputs: Mapping[str, Array] | None = None, constants: Mapping[str, object] | None = None
    ) -> list[Array]:
        """Call the code without recording; return the arrays of its result."""
        values = {**self.inputs, **(inputs or {})}
        with quiet():
            if self.library == "numpy":
                copies = {name: array.copy() for name, array in values.items()}
                result = self.run({**copies, **self.constants, **(constants or {})})
            else:
                import torch

                with torch.no_grad():
                    result = self.run({**self.tensors(values), **self.constants, **(constants or {})})
        return [to_float(leaf) for leaf in leaves(result)]

    def as_argument(self, array: Array) -> object:
        """Return an array in the library of the call."""
        return array if self.library == "numpy" else self.tensors({"array": array})["array"]

    @staticmethod
    def tensors(inputs: Mapping[str, Array]) -> dict[str, Any]:
        """Return arrays as tensors, by name."""
        import torch

        return {name: torch.from_numpy(np.array(array, dtype=array.dtype)) for name, array in inputs.items()}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Run without warnings of the examined code."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


Watch = tuple[int, Callable[[Op], Array]]
"""An operation by index, and rows `[..., d]` read from it."""


def trace_tokens(
    subject: RepeatedCall, base: Trace, watches: Mapping[str, Watch], seed: int
) -> dict[str, dict[str, Array]]:
    """Return for each watched array and each input which token of the input each row depends on.

    A token is a flat index over all axes of an input but the last. Half of the tokens change at a time, by the binary
    digits of their index, so that few calls are needed; a row that changes with a digit and without it is `MIXED`.
    """
    found: dict[str, dict[str, Array]] = {name: {} for name in watches}
    rows = {name: read(base.ops[index]) for name, (index, read) in watches.items()}
    for name, array in subject.inputs.items():
        if array.ndim < 2 or array.dtype.kind != "f":
            continue
        tokens = int(np.prod(array.shape[:-1]))
        noise = np.random.default_rng([seed, 77]).normal(0, 1, array.shape).astype(array.dtype)
        changes = {watch: Digits(value.shape[:-1]) for watch, value in rows.items()}
        for digit, state, chosen in binary_digits(np.arange(tokens), tokens):
            trace = subject.trace({name: array + noise * chosen.reshape(*array.shape[:-1], 1)})
            if len(trace.ops) != len(base.ops):
                raise NotRepeatable
            for watch, (index, read) in watches.items():
                changes[watch].add(digit, state, _row_changes(rows[watch], read(trace.ops[index])))
        for watch, digits in changes.items():
            found[watch][name] = digits.tokens()
    return found


def _row_changes(before: Array, after: Array) -> Array:
    if before.shape != after.shape:
        raise NotRepeatable
    size = max(1e-6, float(np.nanmax(np.abs(before), initial=0.0)))
    return np.asarray((np.abs(np.nan_to_num(after) - np.nan_to_num(before)) > 1e-5 * size).any(axis=-1))


def binary_digits(tokens: Array, count: int) -> Iterator[tuple[int, int, Array]]:
    """Yield a binary digit, 0 or 1, and which tokens have it there."""
    for digit in range(max((count - 1).bit_length(), 1)):
        for state in (0, 1):
            yield digit, state, ((tokens >> digit) & 1) == state


class Digits:
    """Tokens of rows, from the binary digits with which they change."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.token, self.mixed = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
        self.touched, self.seen = np.zeros(shape, dtype=bool), np.zeros((2, *shape), dtype=bool)

    def add(self, digit: int, state: int, changed: Array) -> None:
        """Note which rows changed with the tokens that have this digit."""
        self.seen[state] = changed
        self.touched |= changed
        if state:
            self.mixed |= self.seen[0] & self.seen[1]
            self.token += self.seen[1].astype(np.int64) << digit

    def tokens(self) -> Array:
        """Return the token of each row: `MIXED` of several, `NO_TOKEN` of none."""
        return np.where(self.mixed, MIXED, np.where(self.touched, self.token, NO_TOKEN))
