"""One call layout for the function under test, with seeded inputs and a decoder for its output."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from peasy.proof.doctor.frame import KEY_HEADS, WIDTH, Form, Frame, Numbers
from peasy.proof.doctor.search import Observation
from peasy.proof.doctor.subject import Answer, Patient
from peasy.proof.doctor.variant import Array, Case
from peasy.proof.doctor.way import Way
from peasy.proof.doctor.weights import Projection


@dataclass(frozen=True, eq=False)
class Question:
    """One call: numbers of queries and keys, mask and its convention, causal flag, grouped-query attention."""

    queries: int
    keys: int
    mask: Array | None = None
    form: Form | None = None
    role: str = "mask"
    causal: bool = False
    grouped: bool = False


@dataclass(frozen=True, eq=False)
class Stance:
    """Call layout: tensor layout, heads, and the projections of a target with weights.

    `fixed` are values by role that are passed in every call.
    """

    patient: Patient
    way: Way
    frame: Frame
    numbers: Numbers
    library: str = "torch"
    still: bool = False
    heads: int = 1
    key_heads: int = 1
    projection: Projection | None = None
    turned: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def ask(self, question: Question) -> Observation | Answer:
        """Call the target once; return the observation, or the raw result if it contains no context."""
        arrays, inputs = self.lay_out(question)
        values = {role: self.frame.lay(array) for role, array in arrays.items()} | self.plain(question)
        if question.mask is not None and question.form is not None:
            values[question.role] = question.form.write(question.mask)
            inputs = replace(inputs, mask=question.form.fitting(question.mask))
        result = self.call(values)
        return self.read(inputs, result) or result

    def call(self, values: Mapping[str, Any]) -> Answer:
        """Call the target with values by role."""
        bound = self.way.bind(values)
        if bound is None:
            return Answer()
        return self.patient.call(*bound, library=self.library, still=self.still)

    def lay_out(self, question: Question) -> tuple[dict[str, Array], Case]:
        """Return the arrays by role, `[batch, (head,) time, width]`, and the inputs of the formula."""
        arrays, inputs = self._projected(question) if self.projection else self._direct(question)
        return arrays, replace(inputs, causal=question.causal)

    def plain(self, question: Question) -> dict[str, Any]:
        """Return the other values by role: numbers of heads, widths, flags, and weight arguments."""
        heads, key_heads = (self.heads, self.key_heads) if self.projection else (self.frame.heads, self.frame.heads)
        key_heads = KEY_HEADS if question.grouped else key_heads
        values: dict[str, Any] = dict(self.fixed) | {"heads": heads, "key_heads": key_heads}
        width = WIDTH if self.projection is None else self.projection.query.weight.shape[1] // heads
        values |= {"repeats": heads // key_heads, "d_head": width, "d_model": heads * width}
        if self.way.has("causal"):
            values["causal"] = question.causal
        return values | self._own_weights()

    def read(self, case: Case, answer: Answer) -> Observation | None:
        """Find the context in a result by its shape: like the queries, or with merged heads."""
        if answer.fault is not None:
            return None
        candidates = [(case, self.finish)]
        if self.projection is None and "h" in self.frame.axes:
            candidates.append((replace(case, merged=True), lambda context: context))
        for inputs, finish in candidates:
            shape = self._shape(inputs)
            for path in sorted(answer.arrays, key=len):
                if answer.arrays[path].shape == shape:
                    return Observation(inputs, answer.arrays[path].astype(np.float64), finish)
        return None

    def finish(self, context: Array) -> Array:
        """Convert a context of the formula to the target's output."""
        if self.projection is not None and self.projection.output is not None:
            context = self.projection.output(context)
        return self.frame.lay(context)

    def _shape(self, case: Case) -> tuple[int, ...]:
        if self.projection is None and not case.merged:
            return self.frame.lay(case.query).shape
        batch, queries = len(case.query), case.query.shape[-2]
        if self.projection is None:
            return batch, queries, case.heads * case.query.shape[-1]
        output, values = self.projection.output, self.projection.value.weight.shape[1]
        width = values * case.heads // case.key_heads if output is None else output.weight.shape[1]
        return self.frame.lay(np.empty((batch, queries, width))).shape

    def _direct(self, question: Question) -> tuple[dict[str, Array], Case]:
        layout, kv_heads = self.frame, KEY_HEADS if question.grouped else self.frame.heads
        sizes = {"query": (layout.heads, question.queries), "key": (kv_heads, question.keys)}
        sizes["value"] = sizes["key"]
        arrays = {
            role: self.numbers.array(role, layout.batch, time, heads * WIDTH)
            if layout.flat
            else self.numbers.array(role, layout.batch, heads, time, WIDTH)
            for role, (heads, time) in sizes.items()
        }
        inputs = Case(arrays["query"], arrays["key"], arrays["value"], layout.heads, kv_heads, layout.flat)
        return arrays, inputs

    def _projected(self, question: Question) -> tuple[dict[str, Array], Case]:
        assert self.projection is not None
        projection = self.projection
        x = self.numbers.array("x", self.frame.batch, question.queries, projection.width)
        key = value = x
        if self.way.has("query", "key", "value"):
            key, value = (
                self.numbers.array(name, self.frame.batch, question.keys, linear.weight.shape[0])
                for name, linear in (("key", projection.key), ("value", projection.value))
            )
        elif self.way.has("source"):
            key = value = self.numbers.array("source", self.frame.batch, question.keys, projection.key.weight.shape[0])
        query, key_states, value_states = projection.query(x), projection.key(key), projection.value(value)
        inputs = Case(query, key_states, value_states, self.heads, self.key_heads, flat=True)
        return {"x": x, "query": x, "key": key, "value": value, "source": key}, inputs

    def _own_weights(self) -> dict[str, Any]:
        """Return the projection matrices for a function that takes them as arguments."""
        if self.projection is None or not self.way.has("w_q"):
            return {}
        linears = {"w_q": self.projection.query, "w_k": self.projection.key, "w_v": self.projection.value}
        if self.projection.output is not None:
            linears["w_o"] = self.projection.output
        return {name: linear.weight.T.copy() if self.turned else linear.weight for name, linear in linears.items()}
