"""Tap: captures activations of a forward pass and passes them to a callback.

A tap is an argument of the model, not a hook. It never changes the model's output, bit for bit.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peasy.errors import InvalidInput, did_you_mean
from peasy.formula import FormulaStep
from peasy.nn.module_path import LayerTopK, ModulePath

if TYPE_CHECKING:
    from peasy.nn.capture import AttentionInputs

FORMULA_STEPS = ("scores", "scaled", "masked", "weights")
"""Steps inside the fused kernel: recomputed by the formula, only for the requested rows and heads."""

HEAD_STEPS = ("query", "key", "value", *FORMULA_STEPS, "context")
"""Steps inside attention, `[batch, head, ...]`, named as in the formula."""

TOKEN_STEPS = ("residual", "normed", "activation", "output", "final", "logits")
"""Steps outside attention, `[batch, time, width]`.

residual: residual stream before each block and after the last one · normed: input of a sublayer ·
activation: hidden layer of the MLP · output: output of a sublayer · final: after the last norm · logits.
"""

KNOWN_STEPS = (*HEAD_STEPS, *TOKEN_STEPS)


@dataclass(frozen=True, eq=False)
class Activation:
    """Captured activation: one step of one module, for these `heads` and `rows` (None = all).

    `caption` comes from the formula, if the step is one of its steps.
    """

    path: ModulePath
    step: str
    array: Tensor
    heads: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    caption: FormulaStep | None = None


class Tap:
    """Selects which activations are captured, and the callback that receives them while the model runs.

    None = all. `rows` are queries of this pass, -1 is the last. `parts` are attention, cross_attention,
    feedforward, stream. With `rows_per_block`, attention steps arrive in blocks of that many rows. `on_attention`
    receives the attention inputs (queries, keys, values and mask) instead of computed steps.

    >>> activations = []
    >>> tap = Tap(activations.append, layers=[2], heads=[0, 3], steps=["weights"])
    >>> tap.wants(ModulePath("decoder", 2, "attention"))
    True
    """

    def __init__(
        self,
        callback: Callable[[Activation], object],
        *,
        steps: Iterable[str] = ("weights",),
        layers: Iterable[int] | None = None,
        heads: Iterable[int] | None = None,
        rows: Iterable[int] | None = None,
        parts: Iterable[str] | None = None,
        stacks: Iterable[str] | None = None,
        rows_per_block: int | None = None,
        on_attention: Callable[[ModulePath, "AttentionInputs"], object] | None = None,
    ) -> None:
        self.callback, self.on_attention = callback, on_attention
        self.steps = frozenset(steps)
        self.layers = None if layers is None else frozenset(layers)
        self.heads = None if heads is None else tuple(heads)
        self.rows = None if rows is None else tuple(rows)
        self.parts = None if parts is None else frozenset(parts)
        self.stacks = None if stacks is None else frozenset(stacks)
        self.rows_per_block = rows_per_block
        for step in self.steps - set(KNOWN_STEPS):
            hint = did_you_mean(step, KNOWN_STEPS) or f"Known: {', '.join(KNOWN_STEPS)}."
            raise InvalidInput(f'Unknown step "{step}".', hint=hint)

    def wants(self, path: ModulePath, step: str | None = None) -> bool:
        """Return True if this module, or this step of it, is to be captured."""
        filters = ((path.layer, self.layers), (path.part, self.parts), (path.stack, self.stacks))
        selected = all(wanted is None or value in wanted for value, wanted in filters)
        return selected and (step is None or step in self.steps)

    def resolve_heads(self, count: int) -> tuple[int, ...]:
        """Return the requested heads as indices from 0 to `count` - 1."""
        return _resolve_indices(self.heads, count, "head")

    def resolve_rows(self, count: int) -> tuple[int, ...]:
        """Return the requested query rows as indices from 0 to `count` - 1."""
        return _resolve_indices(self.rows, count, "row")


def _resolve_indices(requested: tuple[int, ...] | None, count: int, axis: str) -> tuple[int, ...]:
    if requested is None:
        return tuple(range(count))
    for index in requested:
        if not -count <= index < count:
            raise InvalidInput(f"There is no {axis} {index}.", hint=f"Valid values are 0 to {count - 1}.")
    return tuple(index % count for index in requested)


def record_step(tap: Tap | None, path: ModulePath, step: str, array: Tensor) -> None:
    """Pass a step `[batch, time, width]` to the tap, if it is to be captured."""
    if tap is None or not tap.wants(path, step):
        return
    if tap.rows is None:
        tap.callback(Activation(path, step, array))
    else:
        rows = tap.resolve_rows(array.shape[1])
        tap.callback(Activation(path, step, array[:, list(rows)], rows=rows))


class AttentionTopK:
    """Top-k attention: a tap on the decoder that keeps the top weights of a sequence's newest token, pass by pass.

    `top_k` None = all.
    """

    def __init__(
        self, top_k: int | None = 8, layers: Iterable[int] | None = None, heads: Iterable[int] | None = None
    ) -> None:
        self.top_k, self._activations = top_k, list[Activation]()
        self.tap = Tap(self._activations.append, layers=layers, heads=heads, rows=[-1], stacks=["decoder"])

    def pop(self, length: int) -> tuple[LayerTopK, ...]:
        """Return and clear the weights of the last pass, which ended at `length` tokens."""
        layers = []
        for activation in self._activations:
            weights = activation.array[0, :, -1]
            # A sliding window has evicted earlier keys.
            first = length - weights.shape[-1] if activation.path.part == "attention" else 0
            top = weights.topk(weights.shape[-1] if self.top_k is None else min(self.top_k, weights.shape[-1]))
            values = top.values.to(torch.promote_types(top.values.dtype, torch.float32))  # NumPy has no bfloat16
            keys = (top.indices + first).cpu().numpy()
            layers.append(LayerTopK(activation.path, keys, values.cpu().numpy(), activation.heads or ()))
        self._activations.clear()
        return tuple(layers)
