"""One call layout for the function under test, with seeded inputs and a decoder for its output."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from peasy.verification.implementation.call_binding import CallBinding
from peasy.verification.implementation.instantiate import QKVProjections
from peasy.verification.implementation.mistake import Observation
from peasy.verification.implementation.target import Arg, CallResult, Target
from peasy.verification.implementation.variant import (
    D_HEAD,
    NUM_KV_HEADS,
    Array,
    MaskConvention,
    SeededInputs,
    TensorLayout,
    VariantInputs,
)


@dataclass(frozen=True, eq=False)
class CallSpec:
    """One call: numbers of queries and keys, mask and its convention, causal flag, grouped-query attention."""

    num_queries: int
    num_keys: int
    mask: Array | None = None
    convention: MaskConvention | None = None
    mask_role: str = "mask"
    causal: bool = False
    grouped_query: bool = False


@dataclass(frozen=True, eq=False)
class Case:
    """Call layout: tensor layout, heads, and the projections of a target with weights.

    `fixed_values` are values by role that are passed in every call.
    """

    target: Target
    binding: CallBinding
    layout: TensorLayout
    seeded: SeededInputs
    library: str = "torch"
    disable_dropout: bool = False
    num_heads: int = 1
    num_kv_heads: int = 1
    projection: QKVProjections | None = None
    transposed_weights: bool = False
    fixed_values: Mapping[str, Arg] = field(default_factory=dict)

    def with_projection(self, projection: QKVProjections, axes: str, num_heads: int, num_kv_heads: int) -> "Case":
        """Return the case with a projection, in a layout with concatenated heads."""
        layout = TensorLayout(axes, flat_heads=True)
        return replace(self, layout=layout, projection=projection, num_heads=num_heads, num_kv_heads=num_kv_heads)

    def with_full_mask(self, spec: CallSpec, convention: MaskConvention | None) -> CallSpec:
        """Return the call with an all-True mask if the target requires a mask in this convention."""
        if convention is None:
            return spec
        mask = np.ones((self.layout.batch_size, 1, spec.num_queries, spec.num_keys), dtype=bool)
        return replace(spec, mask=mask, convention=convention)

    def run(self, spec: CallSpec) -> Observation | CallResult:
        """Call the target once; return the observation, or the raw result if it contains no context."""
        arrays, inputs = self.build_inputs(spec)
        values = {role: self.layout.arrange(array) for role, array in arrays.items()} | self.scalar_values(spec)
        if spec.mask is not None and spec.convention is not None:
            values[spec.mask_role] = spec.convention.encode(spec.mask)
            inputs = replace(inputs, mask=spec.convention.restrict(spec.mask))
        result = self.call(values)
        return self.find_context(inputs, result) or result

    def call(self, values: Mapping[str, Arg]) -> CallResult:
        """Call the target with values by role."""
        bound = self.binding.bind(values)
        if bound is None:
            return CallResult()
        return self.target.call(*bound, library=self.library, disable_dropout=self.disable_dropout)

    def build_inputs(self, spec: CallSpec) -> tuple[dict[str, Array], VariantInputs]:
        """Return the arrays by role, `[batch, (head,) time, width]`, and the inputs of the formula."""
        arrays, inputs = self._projected_inputs(spec) if self.projection else self._direct_inputs(spec)
        return arrays, replace(inputs, causal=spec.causal)

    def scalar_values(self, spec: CallSpec) -> dict[str, Arg]:
        """Return the other values by role: numbers of heads, widths, flags, and weight arguments."""
        num_heads = self.num_heads if self.projection else self.layout.num_heads
        num_kv_heads = self.num_kv_heads if self.projection else num_heads
        num_kv_heads = NUM_KV_HEADS if spec.grouped_query else num_kv_heads
        values: dict[str, Arg] = dict(self.fixed_values) | {"heads": num_heads, "key_heads": num_kv_heads}
        width = D_HEAD if self.projection is None else self.projection.query.weight.shape[1] // num_heads
        values |= {"repeats": num_heads // num_kv_heads, "d_head": width, "d_model": num_heads * width}
        if self.binding.has_roles("causal"):
            values["causal"] = spec.causal
        return values | self._weight_arguments()

    def find_context(self, variant_inputs: VariantInputs, result: CallResult) -> Observation | None:
        """Find the context in a result by its shape: like the queries, or with merged heads."""
        if result.fault is not None:
            return None
        candidates = [(variant_inputs, self.to_output)]
        if self.projection is None and "h" in self.layout.axes:
            candidates.append((replace(variant_inputs, merged_output=True), lambda context: context))
        for inputs, finish in candidates:
            shape = self._context_shape(inputs)
            for path in sorted(result.arrays, key=len):
                if result.arrays[path].shape == shape:
                    return Observation(inputs, result.arrays[path].astype(np.float64), finish)
        return None

    def to_output(self, context: Array) -> Array:
        """Convert a context of the formula to the target's output."""
        if self.projection is not None and self.projection.output is not None:
            context = self.projection.output(context)
        return self.layout.arrange(context)

    def _context_shape(self, inputs: VariantInputs) -> tuple[int, ...]:
        if self.projection is None and not inputs.merged_output:
            return self.layout.arrange(inputs.query).shape
        batch, queries = len(inputs.query), inputs.query.shape[-2]
        if self.projection is None:
            return batch, queries, inputs.num_heads * inputs.query.shape[-1]
        output, values = self.projection.output, self.projection.value.weight.shape[1]
        width = values * inputs.num_heads // inputs.num_kv_heads if output is None else output.weight.shape[1]
        return self.layout.arrange(np.empty((batch, queries, width))).shape

    def _direct_inputs(self, spec: CallSpec) -> tuple[dict[str, Array], VariantInputs]:
        layout, kv_heads = self.layout, NUM_KV_HEADS if spec.grouped_query else self.layout.num_heads
        arrays = {}
        for role in ("query", "key", "value"):
            heads, time = (layout.num_heads, spec.num_queries) if role == "query" else (kv_heads, spec.num_keys)
            shape = (time, heads * D_HEAD) if layout.flat_heads else (heads, time, D_HEAD)
            arrays[role] = self.seeded.array(role, layout.batch_size, *shape)
        query, key, value = arrays.values()
        return arrays, VariantInputs(query, key, value, layout.num_heads, kv_heads, layout.flat_heads)

    def _projected_inputs(self, spec: CallSpec) -> tuple[dict[str, Array], VariantInputs]:
        assert self.projection is not None
        projection = self.projection
        batch_size, num_keys = self.layout.batch_size, spec.num_keys
        x = self.seeded.array("x", batch_size, spec.num_queries, projection.d_in)
        key = value = x
        if self.binding.has_roles("query", "key", "value"):
            key = self.seeded.array("key", batch_size, num_keys, projection.key.weight.shape[0])
            value = self.seeded.array("value", batch_size, num_keys, projection.value.weight.shape[0])
        elif self.binding.has_roles("source"):
            key = value = self.seeded.array("source", batch_size, num_keys, projection.key.weight.shape[0])
        query, key_states, value_states = projection.query(x), projection.key(key), projection.value(value)
        inputs = VariantInputs(query, key_states, value_states, self.num_heads, self.num_kv_heads, flat_heads=True)
        return {"x": x, "query": x, "key": key, "value": value, "source": key}, inputs

    def _weight_arguments(self) -> dict[str, Arg]:
        """Return the projection matrices for a function that takes them as arguments."""
        if self.projection is None or not self.binding.has_roles("w_q"):
            return {}
        projection = self.projection
        linears = {"w_q": projection.query, "w_k": projection.key, "w_v": projection.value, "w_o": projection.output}
        weights = {name: linear.weight for name, linear in linears.items() if linear is not None}
        return {name: weight.T.copy() if self.transposed_weights else weight for name, weight in weights.items()}
