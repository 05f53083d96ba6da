"""Recorder: stores the activations of a tap as NumPy arrays in the chosen dtype."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

from peasy.inspection.capture_spec import CaptureSpec
from peasy.inspection.results import Capture
from peasy.nn.capture import AttentionInputs
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import FORMULA_STEPS, Activation, Tap

ROW_BLOCK = 256
"""Rows per callback: besides the stored arrays, only these are held in full precision."""


class Recorder:
    """Stores the captured steps of one sequence (the first of a batch), with its length in each stack.

    Arrays are allocated once, in full size. With weights it also stores the norm of each key's value vector, so that
    value-weighted attention can be shown.
    """

    def __init__(self, spec: CaptureSpec, lengths: Mapping[str, int], storage: str = "float32") -> None:
        self.spec, self.lengths = spec, lengths
        self._dtype = torch.float16 if storage == "float16" else torch.float32
        self._captured: dict[tuple[ModulePath, str], Activation] = {}
        self._value_norms: dict[ModulePath, np.ndarray] = {}

    def tap(self, on_attention: Callable[[ModulePath, AttentionInputs], object] | None = None) -> Tap:
        """Return the tap for this spec; `on_attention` also receives the attention inputs of the same pass."""
        spec = self.spec
        steps = {*spec.steps, "value"} if "weights" in spec.steps else set(spec.steps)
        return Tap(
            self.record, steps=steps, layers=spec.layers, heads=spec.heads, rows=spec.rows,
            parts=spec.parts, stacks=spec.stacks, rows_per_block=ROW_BLOCK, on_attention=on_attention,
        )  # fmt: skip

    def record(self, activation: Activation) -> None:
        """Store one activation; the [query, key] steps arrive in blocks of rows."""
        array = activation.array[0].detach()
        if activation.step == "value" and "weights" in self.spec.steps:
            self._value_norms[activation.path] = array.float().norm(dim=-1).cpu().numpy()
        if activation.step not in self.spec.steps:
            return
        key = (activation.path, activation.step)
        if activation.step not in FORMULA_STEPS:
            self._captured[key] = replace(activation, array=array.to(self._dtype, copy=True))
            return
        if key not in self._captured:
            full = torch.empty(len(array), self._num_rows(activation.path), array.shape[-1], dtype=self._dtype)
            self._captured[key] = replace(activation, array=full, rows=())
        previous_rows, rows = self._captured[key].rows or (), activation.rows or ()
        self._captured[key].array[:, len(previous_rows) : len(previous_rows) + len(rows)].copy_(array)
        self._captured[key] = replace(self._captured[key], rows=(*previous_rows, *rows))

    def _num_rows(self, path: ModulePath) -> int:
        return self.lengths[path.stack] if self.spec.rows is None else len(self.spec.rows)

    def captures(self) -> tuple[Capture, ...]:
        """Return all captures in execution order."""
        return tuple(self._to_capture(activation) for activation in self._captured.values())

    def _to_capture(self, activation: Activation) -> Capture:
        rows = activation.rows
        if rows is None and activation.step not in ("key", "value"):
            rows = tuple(range(activation.array.shape[-2]))
        norms = self._value_norms.get(activation.path) if activation.step == "weights" else None
        return Capture(
            activation.path,
            activation.step,
            activation.array.cpu().numpy(),
            tuple(activation.heads or ()),
            rows,
            norms,
            activation.caption,
        )
