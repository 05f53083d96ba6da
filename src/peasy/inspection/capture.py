"""Capture of activations: what to keep of a forward pass, the memory that it needs, and the recorder that keeps it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from peasy.checkpoint.ram import format_bytes
from peasy.errors import InvalidInput, ResourceUnavailable, did_you_mean, lookup
from peasy.inspection.forward import ModelInput, attentions_of, default_stack, dims_of
from peasy.inspection.results import Array, AttentionInfo, Capture
from peasy.models.protocol import Model
from peasy.nn.attention import Attention
from peasy.nn.capture import AttentionInputs
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import FORMULA_STEPS, HEAD_STEPS, KNOWN_STEPS, TOKEN_STEPS, Activation, Tap
from peasy.parameters import Record

ROW_BLOCK = 256
"""Rows per callback: besides the stored arrays, only these are held in full precision."""


_STORAGES = {"auto": ("float32", "float16"), "float32": ("float32",), "float16": ("float16",)}


def _choose_storage(num_values: int, budget: int, storage: str = "auto") -> str:
    """Return the dtype in which this many values fit the budget: float32, else float16; raise if neither does.

    >>> _choose_storage(1000, 4000), _choose_storage(1000, 2000)
    ('float32', 'float16')
    """
    dtypes = lookup(storage, _STORAGES, "storage")
    needed = 0
    for dtype in dtypes:
        needed = num_values * np.dtype(dtype).itemsize
        if needed <= budget:
            return dtype
    message = f"This would keep {format_bytes(needed)} in {dtypes[-1]}, but the budget is {format_bytes(budget)}."
    hint = 'Choose fewer layers, heads or queries, or overview="mean", or raise max_memory.'
    raise ResourceUnavailable(message, hint=hint)


class CaptureSpec(Record):
    """What to capture; None = all, -1 is the last. `rows`: query positions; `parts` and `stacks` as in `Tap`."""

    steps: tuple[str, ...] = ("weights",)
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    parts: tuple[str, ...] | None = None
    stacks: tuple[str, ...] | None = None

    def resolved(self, model: Model, name: str = "This model") -> "CaptureSpec":
        """Return the spec with layers and heads numbered from 0; raise if the model does not have them, or a step."""
        for step in self.steps:
            if step not in KNOWN_STEPS:
                hint = did_you_mean(step, KNOWN_STEPS) or f"Choose from {', '.join(KNOWN_STEPS)}."
                raise InvalidInput(f'There is no step "{step}".', hint=hint)
        if not self.steps:
            raise InvalidInput("No step is given.", hint=f"Choose from {', '.join(KNOWN_STEPS)}.")
        for what, chosen in (("layer", self.layers), ("head", self.heads), ("part", self.parts)):
            if chosen == ():
                raise InvalidInput(f"No {what} is given.", hint=f"Name one, or leave {what}s out for all of them.")
        attentions = attentions_of(model)
        if set(self.steps) & set(HEAD_STEPS) and not attentions:
            hint = "Only its residual stream can be captured: steps=['residual'] or ['final']."
            raise InvalidInput(f"{name} has no attention.", hint=hint)
        num_layers, num_heads = max(dims_of(model).num_layers.values(), default=0), [a.num_heads for a in attentions]
        layers = _from_zero("layer", self.layers, num_layers, extra=bool(set(self.steps) & set(TOKEN_STEPS)))
        return replace(self, layers=layers, heads=_from_zero("head", self.heads, max(num_heads)) if num_heads else None)

    def includes(self, attention: AttentionInfo) -> bool:
        """True if this attention is to be captured."""
        path = attention.path
        filters = ((path.layer, self.layers), (path.part, self.parts), (path.stack, self.stacks))
        return all(allowed is None or value in allowed for value, allowed in filters)

    def _count_values(self, model: Model, lengths: Mapping[str, int]) -> int:
        """Return the number of values captured, for a sequence with these lengths in each stack."""
        dims, total = dims_of(model), 0
        for attention in filter(self.includes, attentions_of(model)):
            queries = lengths[attention.path.stack]
            keys = lengths["encoder"] if attention.cross else queries
            rows, heads = queries if self.rows is None else len(self.rows), range(attention.num_heads)
            num_heads = len(heads if self.heads is None else [head for head in self.heads if head in heads])
            sizes = dict.fromkeys(FORMULA_STEPS, rows * keys) | dict.fromkeys(("query", "context"), rows * dims.d_head)
            sizes |= dict.fromkeys(("key", "value"), keys * dims.d_head)
            total += num_heads * sum(sizes[step] for step in self.steps if step in sizes)
        per_layer = {"residual": dims.d_model, "normed": 2 * dims.d_model, "output": 2 * dims.d_model}
        per_layer |= {"activation": dims.d_ff}
        for stack, length in lengths.items():
            if self.stacks is None or stack in self.stacks:
                count = dims.num_layers.get(stack, 0)
                layers = count if self.layers is None else len([layer for layer in self.layers if layer < count])
                once = {"final": dims.d_model, "logits": dims.vocab_size if stack == default_stack(model) else 0}
                values = sum((layers + 1) * per_layer.get(step, 0) + once.get(step, 0) for step in self.steps)
                total += (length if self.rows is None else len(self.rows)) * values
        return total


def _from_zero(what: str, indices: Sequence[int] | None, count: int, extra: bool = False) -> tuple[int, ...] | None:
    """Return indices counted from 0, where -1 is the last; `extra`: one more than `count` exists (the stream's end)."""
    for index in indices or ():
        if not -count <= index < count + extra:
            hint = f"Choose from {-count if index < 0 else 0} to {count + extra - 1}."
            raise InvalidInput(f"There is no {what} {index}.", hint=hint)
    return None if indices is None else tuple(index % count if index < 0 else index for index in indices)


def output_weights_of(model: Model) -> dict[ModulePath, Tensor]:
    """Return the output projection of every attention layer."""
    return {layer.path: layer.output.weight for layer in model.modules() if isinstance(layer, Attention)}


def output_norms(values: Tensor, weight: Tensor, heads: Sequence[int]) -> Tensor:
    """Return |v · W_O| of the values `[head, key, d_head]` of these heads, each through its own part of W_O."""
    by_head = weight.detach().float().unflatten(1, (-1, values.shape[-1]))[:, list(heads)]
    gram = torch.einsum("mhd,mhe->hde", by_head, by_head)  # |vW| from WW: no array of d_model per key
    return ((values.float() @ gram) * values.float()).sum(dim=-1).clamp(min=0).sqrt()


class Recorder:
    """Keeps the captured steps of one sequence (the first of a batch), with its length in each stack.

    Arrays are allocated once, in full size. With weights it also keeps the norm of each key's value vector, so that
    value-weighted attention can be shown.
    """

    def __init__(self, spec: CaptureSpec, lengths: Mapping[str, int], storage: str = "float32") -> None:
        self.spec, self.lengths, self.storage, self.nbytes = spec, lengths, storage, 0
        self._dtype = torch.float16 if storage == "float16" else torch.float32
        self.captured: dict[tuple[ModulePath, str], Capture] = {}
        self._value_norms: dict[ModulePath, Array] = {}
        self._output_norms: dict[ModulePath, Array] = {}
        self.output_weights: dict[ModulePath, Tensor] = {}

    @classmethod
    def for_input(
        cls, model: Model, model_input: ModelInput, spec: CaptureSpec, budget: int, storage: str = "auto",
        *, extra_values: int = 0,
    ) -> "Recorder":  # fmt: skip
        """Return a recorder for one input in a dtype that fits the budget; if none does, raise before the model runs.

        `extra_values`: further numbers that have to fit into the budget.
        """
        lengths = model_input.lengths(model)
        num_values = spec._count_values(model, lengths) + extra_values
        recorder = cls(spec, lengths, _choose_storage(num_values, budget, storage))
        recorder.nbytes = num_values * np.dtype(recorder.storage).itemsize
        recorder.output_weights = output_weights_of(model)
        return recorder

    def tap(self, on_attention: Callable[[ModulePath, AttentionInputs], object] | None = None) -> Tap:
        """Return the tap for this spec; `on_attention` also receives the attention inputs of the same pass."""
        spec = self.spec
        steps = {*spec.steps, "value"} if "weights" in spec.steps else set(spec.steps)
        return Tap(
            self.record, steps=steps, layers=spec.layers, heads=spec.heads, rows=spec.rows,
            parts=spec.parts, stacks=spec.stacks, rows_per_block=ROW_BLOCK, on_attention=on_attention,
        )  # fmt: skip

    def record(self, activation: Activation) -> None:
        """Keep one activation; the [query, key] steps arrive in blocks of rows."""
        path, step, array = activation.path, activation.step, activation.array[0].detach()
        if step == "value" and "weights" in self.spec.steps:
            self._value_norms[path] = array.float().norm(dim=-1).cpu().numpy()
            if (weight := self.output_weights.get(path)) is not None:
                self._output_norms[path] = output_norms(array, weight, activation.heads or ()).cpu().numpy()
        if step not in self.spec.steps:
            return
        values = array.to(self._dtype, copy=step not in FORMULA_STEPS).cpu().numpy()
        heads, rows = activation.heads or (), activation.rows
        if step not in FORMULA_STEPS:
            rows = tuple(range(values.shape[-2])) if rows is None and step not in ("key", "value") else rows
            self.captured[path, step] = Capture(path, step, values, heads, rows, caption=activation.caption)
            return
        if (path, step) not in self.captured:
            num_rows = self.lengths[path.stack] if self.spec.rows is None else len(self.spec.rows)
            whole = np.empty((len(values), num_rows, values.shape[-1]), values.dtype)
            pair = (self._value_norms, self._output_norms)
            norms, output = (found.get(path) if step == "weights" else None for found in pair)
            self.captured[path, step] = Capture(path, step, whole, heads, (), norms, output, activation.caption)
        capture = self.captured[path, step]
        joined = (*(capture.rows or ()), *(rows or ()))
        capture.array[:, len(capture.rows or ()) : len(joined)] = values
        self.captured[path, step] = replace(capture, rows=joined)
