"""Why an output differs from another: conventions and slips, computed from recorded queries, keys and values."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from peasy.errors import InvalidInput
from peasy.formula.scoring import softmax
from peasy.verification.implementation.core import Array, Core
from peasy.verification.implementation.reading import Reading
from peasy.verification.implementation.repeated_call import RepeatedCall
from peasy.verification.implementation.trace import in_library_of, to_float


def read_expected(path: str) -> tuple[Array, dict[str, Array]]:
    """Return the expected output, and inputs: of a .npy file only the output; of a .npz file also arrays by name."""
    try:
        loaded = np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError):
        message = f"{Path(path).name} is not an array file."
        raise InvalidInput(message, hint="Save it with numpy.save or savez.") from None
    if isinstance(loaded, np.ndarray):
        return loaded, {}
    arrays = {name: loaded[name] for name in loaded.files}
    if "expected" not in arrays:
        message = f'{Path(path).name} has no array "expected".'
        raise InvalidInput(message, hint="numpy.savez(path, expected=..., q=..., k=...)")
    return arrays.pop("expected"), arrays


_softmax = partial(softmax, np)


def _changes(reading: Reading) -> Iterator[tuple[str, Array]]:
    """Yield names of conventions and slips, with the weights that they give."""
    d_key, product = reading.d_key, reading.product
    raw = product / (reading.query_line.factor * reading.key_line.factor)
    allowed = np.ones(product.shape, bool) if reading.allowed is None else reading.allowed
    ahead = reading.key_times[:, None, :] - reading.query_times[:, :, None]
    shift = int(reading.key_times.max() - reading.query_times.max())
    scales = {"": reading.scale or d_key**-0.5, "without the scale": 1.0, "scaled by 1/d_k": 1 / d_key,
              "scaled by 1/√d_k": d_key**-0.5, "multiplied by √d_k": d_key**0.5}  # fmt: skip
    masks = {
        "": allowed, "without a mask": np.ones_like(allowed), "with a causal mask, aligned top-left": ahead <= 0,
        "with a causal mask, aligned bottom-right": ahead <= shift, "with the mask inverted": ~allowed,
        "with the causal mask one later": ahead <= shift + 1, "with the causal mask one earlier": ahead < shift,
    }  # fmt: skip
    for scale_name, scale in scales.items():
        for mask_name, mask in masks.items():
            name, scores = ", ".join(filter(None, (scale_name, mask_name))), raw * scale
            hidden = np.where(mask, scores, -np.inf)
            yield name, _softmax(hidden)
            yield f"{name}, softmax over queries".strip(", "), _softmax(hidden.swapaxes(-1, -2)).swapaxes(-1, -2)
            yield f"{name}, 0 as mask value".strip(", "), _softmax(np.where(mask, scores, 0.0))
            yield f"{name}, mask after softmax".strip(", "), _softmax(scores) * mask
    half = (raw * (reading.scale or 1)).astype(np.float16).astype(np.float64)
    weights = _softmax(np.where(allowed, half, -np.inf))
    yield "in half precision", weights.astype(np.float16).astype(np.float64)


def explain_difference(subject: RepeatedCall, reading: Reading, expected: Array) -> list[str]:
    """Return what turns the output into the expected one, or that nothing known does."""
    results = [to_float(leaf) for leaf, _ in reading.trace.results]
    fitting = [number for number, result in enumerate(results) if result.shape == expected.shape]
    if not fitting:
        shapes = ", ".join(str(result.shape) for result in results)
        return [f"The expected array has shape {expected.shape}; the output has {shapes}."]
    number = fitting[0]
    difference = float(np.abs(results[number] - expected).max())
    if _close(results[number], expected):
        return [f"The output is the expected array (largest difference {difference:.1e})."]
    notes = [f"The output differs from the expected array by up to {difference:.2g}."]
    for name, weights in _changes(reading):
        trace = subject.trace(overrides={reading.core.context.index: partial(_context, reading.core, weights)})
        if name and _close(to_float(trace.results[number][0]), expected):
            return [*notes, f"The expected array is what this code gives {name}."]
    if _close(np.round(results[number], 2), np.round(expected, 2), 6e-3):
        return [*notes, "Both agree to two decimals: rounding or another dtype."]
    return [*notes, "No known convention or slip turns one into the other."]


def _close(a: Array, b: Array, tolerance: float = 2e-4) -> bool:
    return bool(np.all(np.abs(a - b) <= tolerance * max(1.0, float(np.abs(b).max()))))


def _context(core: Core, weights: Array, result: Any) -> object:
    """Return the recorded context with other weights, in the shape of the result."""
    rows = np.einsum("nij,nijd->nid", weights, core.values[core.value_rows])
    return in_library_of(result, core.spread(rows, tuple(result.shape)))
