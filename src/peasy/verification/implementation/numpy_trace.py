"""Recorder of NumPy operations: an array class that notes every function applied to it, under the names of torch."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from peasy.verification.implementation.names import projection_role, role_of
from peasy.verification.implementation.trace import (
    CONSTANT,
    INPUT,
    PARAMETER,
    OperationRecorder,
    Trace,
    flatten,
    leaves,
    replayer,
    user_places,
)

_UFUNCS = {
    "multiply": "mul", "divide": "div", "true_divide": "div", "subtract": "sub", "negative": "neg", "matmul": "bmm",
    "greater_equal": "ge", "less_equal": "le", "greater": "gt", "less": "lt",
}  # fmt: skip
_REDUCED = {"add": "sum", "maximum": "amax", "minimum": "amin", "logical_or": "any", "logical_and": "all"}
_FUNCTIONS = {
    "concatenate": "cat", "transpose": "permute", "swapaxes": "transpose", "moveaxis": "permute", "ravel": "view",
    "expand_dims": "unsqueeze", "broadcast_to": "expand", "tile": "repeat", "repeat": "repeat_interleave",
    "array_split": "split", "max": "amax", "min": "amin", "vstack": "cat", "hstack": "cat",
}  # fmt: skip


class NumpyRecorder(OperationRecorder):
    """Operations on traced arrays, in order."""

    def wrap(self, array: np.ndarray, kind: str, name: str = "") -> object:
        """Return a traced array for an input or a weight."""
        return self._traced(np.array(array), (self.add_root(kind, name, np.array(array)), 0))

    def _traced(self, array: object, source: tuple[int, int]) -> object:
        if not isinstance(array, np.ndarray):
            return array
        traced = array.view(TracedArray)
        traced.recorder, traced.source = self, source
        return traced

    def source_of(self, array: object) -> tuple[int, int]:
        """Return the record of an array; arrays that are not traced are constants."""
        if isinstance(array, TracedArray) and array.source is not None:
            return array.source
        return self.add_root(CONSTANT, "", np.array(array)), 0

    def apply(self, name: str, function: Callable[..., object], args: Any, kwargs: Any = None) -> Any:
        """Apply a function to plain arrays, and record it."""
        kwargs = kwargs or {}
        arrays = [each for each in flatten((*args, *kwargs.values())) if isinstance(each, np.ndarray)]
        sources = tuple(self.source_of(each) for each in arrays)
        result = function(*plain(args), **plain(kwargs))
        if name == "bmm":
            arrays = _broadcast(arrays)
        return self.record(name, function, args, kwargs, sources, arrays, result)

    def record(
        self, name: str, function: Any, args: Any, kwargs: Any, sources: tuple[tuple[int, int], ...],
        arrays: list[Any], result: object,
    ) -> Any:  # fmt: skip
        """Add a record, and return the result as traced arrays."""
        result = self.override(result)
        outputs = tuple(np.array(each) for each in flatten((result,)) if isinstance(each, np.ndarray))
        scalars = tuple(each for each in flatten(args) if not isinstance(each, np.ndarray))
        values, replay = (
            tuple(np.array(plain(each)) for each in arrays),
            replayer(function, args, kwargs, np.ndarray, plain),
        )
        kept, places = outputs or (np.array(result),), user_places(self.skipped)
        index = self.add(name, sources, values, kept, places, replay, scalars)
        if isinstance(result, list | tuple):
            return type(result)(self._traced(each, (index, number)) for number, each in enumerate(result))
        return self._traced(result, (index, 0))


def _broadcast(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return the operands of a product with the same leading axes."""
    left, right = (plain(each) for each in arrays)
    if left.ndim < 2 or right.ndim < 2:
        return [left, right]
    lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    return [np.broadcast_to(left, lead + left.shape[-2:]), np.broadcast_to(right, lead + right.shape[-2:])]


def plain(value: object) -> Any:
    """Return arrays without tracing, also in nested arguments."""
    if isinstance(value, TracedArray):
        return value.view(np.ndarray)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(each) for each in value)
    return value


class TracedArray(np.ndarray):
    """Array whose operations are recorded."""

    recorder: NumpyRecorder | None = None
    source: tuple[int, int] | None = None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        recorder = _recorder(inputs) or _recorder(kwargs.get("out", ()))
        out = kwargs.pop("out", None)
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        name = _UFUNCS.get(ufunc.__name__, ufunc.__name__)
        if method == "reduce":
            name = _REDUCED.get(ufunc.__name__, ufunc.__name__)
        if recorder is None or method not in ("__call__", "reduce"):
            return function(*plain(inputs), **plain(kwargs))
        result = recorder.apply(name, function, inputs, kwargs)
        if out is not None and isinstance(out[0], TracedArray):
            np.copyto(plain(out[0]), plain(result))
            out[0].source = result.source
            return out[0]
        return result

    def __array_function__(self, function: Any, types: object, args: Any, kwargs: Any) -> object:
        recorder = _recorder((args, kwargs))
        if recorder is None:
            return function(*plain(args), **plain(kwargs))
        if function is np.einsum and len(args) == 3 and isinstance(args[0], str):
            return _einsum(args[0], args[1], args[2])
        if function in (np.dot, np.inner) and len(args) == 2:
            right = args[1] if function is np.dot or np.ndim(args[1]) < 2 else args[1].swapaxes(-1, -2)
            if np.ndim(args[0]) <= 2 or np.ndim(right) <= 2:
                return args[0] @ right
        name = function.__name__
        return recorder.apply(_FUNCTIONS.get(name, name), function, args, kwargs)

    def _view(self, name: str, function: Callable[[Any], object]) -> object:
        if self.recorder is None or self.source is None:
            return function(plain(self))
        return self.recorder.apply(name, function, (self,))

    @property
    def T(self) -> Any:
        """Transposed array, recorded."""
        return self._view("permute", lambda array: array.T)

    @property
    def mT(self) -> Any:
        """Array with the last two axes exchanged, recorded."""
        return self._view("transpose", lambda array: array.swapaxes(-1, -2))

    def astype(self, dtype: object, **kwargs: object) -> object:  # type: ignore[override]
        """Convert, recorded."""
        return self._view("_to_copy", lambda array: array.astype(dtype) if array.dtype.kind == "f" else array)

    def dot(self, other: object, out: object = None) -> Any:
        """Product, recorded."""
        return self @ other

    def __getitem__(self, key: object) -> Any:
        return self._view("index", lambda array: array[plain(key)])

    def __setitem__(self, key: object, value: object) -> None:
        if self.recorder is None or self.source is None:
            plain(self)[plain(key)] = plain(value)
            return
        sources = (
            self.source,
            *(self.recorder.source_of(each) for each in flatten((key, value)) if isinstance(each, np.ndarray)),
        )
        before = plain(self).copy()
        plain(self)[plain(key)] = plain(value)
        name = "assemble" if isinstance(value, TracedArray) else "masked_fill"
        changed = self.recorder.record(name, None, (value,), {}, sources, [before], plain(self).copy())
        np.copyto(plain(self), plain(changed))
        self.source = changed.source


def _recorded(method: str, name: str) -> Callable[..., Any]:
    """Return a method of arrays under which an operation is recorded."""

    def call(self: TracedArray, *args: object, **kwargs: object) -> Any:
        return self._view(name, lambda array: getattr(array, method)(*args, **kwargs))

    return call


for _method, _name in {
    "reshape": "view", "transpose": "permute", "swapaxes": "transpose", "copy": "clone", "flatten": "view",
    "squeeze": "squeeze", "repeat": "repeat_interleave",
}.items():  # fmt: skip
    setattr(TracedArray, _method, _recorded(_method, _name))


def _recorder(values: Any) -> NumpyRecorder | None:
    flat = flatten(values.values() if isinstance(values, dict) else values)
    for each in flat:
        if isinstance(each, dict):
            found = _recorder(each)
            if found is not None:
                return found
        if isinstance(each, TracedArray) and each.recorder is not None and each.source is not None:
            return each.recorder
    return None


def _einsum(subscripts: str, a: Any, b: Any) -> object:
    """Return an einsum of two arrays as transposes and one product, so that it is recorded like any other product."""
    left, _, right_out = subscripts.replace(" ", "").partition(",")
    right, _, out = right_out.partition("->")
    extra = "ZYXWVU"
    for number in (0, 1):
        array, text = (a, left) if number == 0 else (b, right)
        if "..." in text:
            letters = extra[len(extra) - (np.ndim(array) - len(text) + 3) :]
            left, right = (
                (left.replace("...", letters), right) if number == 0 else (left, right.replace("...", letters))
            )
    letters = max((each.strip("".join(set(left + right) - set(extra))) for each in (left, right)), key=len)
    out = out.replace("...", "".join(each for each in letters if each in extra))
    batch = [each for each in left if each in right and each in out]
    summed = [each for each in left if each in right and each not in out]
    free_a, free_b = [each for each in left if each not in right], [each for each in right if each not in left]
    if set(free_a + free_b) - set(out) or not summed:
        return np.einsum(subscripts, plain(a), plain(b))
    sizes = dict(zip(left, np.shape(a), strict=True)) | dict(zip(right, np.shape(b), strict=True))

    def size(letters: list[str]) -> int:
        return int(np.prod([sizes[each] for each in letters]))

    a = _traced_like(a, b).transpose([left.index(each) for each in batch + free_a + summed])
    b = _traced_like(b, a).transpose([right.index(each) for each in batch + summed + free_b])
    product = a.reshape(size(batch), size(free_a), size(summed)) @ b.reshape(size(batch), size(summed), size(free_b))
    order = batch + free_a + free_b
    return product.reshape([sizes[each] for each in order]).transpose([order.index(each) for each in out])


def _traced_like(array: object, other: Any) -> Any:
    if isinstance(array, TracedArray):
        return array
    recorder = other.recorder
    return recorder._traced(np.asarray(array), recorder.source_of(np.asarray(array)))


def is_weight(name: str) -> bool:
    """Return whether an array of an object is a weight by its name: not one of keys or values, as in a cache."""
    return bool(projection_role([name])) and role_of(name) not in ("query", "key", "value")


def arrays_of(owner: object) -> dict[str, np.ndarray]:
    """Return the arrays that an object has as attributes."""
    return {name: value for name, value in getattr(owner, "__dict__", {}).items() if type(value) is np.ndarray}


def numpy_call(
    run: Callable[[Mapping[str, Any]], object], inputs: Mapping[str, np.ndarray], constants: Mapping[str, object],
    overrides: Mapping[int, Callable[[Any], object]], parameters: Mapping[str, Any] | None = None, owner: object = None,
) -> Trace:  # fmt: skip
    """Call NumPy code with traced arrays and record it; arrays of its `owner` are traced too: it may write to them."""
    recorder = NumpyRecorder(overrides)
    own = arrays_of(owner)
    for name, array in own.items():
        setattr(owner, name, recorder.wrap(array, PARAMETER if is_weight(name) else CONSTANT, name))
    values: dict[str, Any] = {name: recorder.wrap(array, INPUT, name) for name, array in inputs.items()}
    values |= {name: recorder.wrap(array, PARAMETER, name) for name, array in (parameters or {}).items()}
    try:
        result = run({**values, **constants})
    finally:
        for name in own:
            setattr(owner, name, plain(getattr(owner, name)))
    for leaf in leaves(result):
        source = leaf.source if isinstance(leaf, TracedArray) else None
        recorder.trace.results.append((np.array(plain(leaf)), source))
    return recorder.trace
