"""A stance: one way to lay seeded numbers before a patient, and to read its result as a context."""

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
    """What is asked: how many queries and keys, a mask, whether to look back only, whether heads share keys."""

    queries: int
    keys: int
    mask: Array | None = None
    form: Form | None = None
    role: str = "mask"
    causal: bool = False
    grouped: bool = False


@dataclass(frozen=True, eq=False)
class Stance:
    """Axes, heads, and for a patient with maps of its own how its weights are read.

    `fixed` are plain values by role that are given in every call.
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
        """One call: what came out beside what went in, or the answer if that is no context."""
        arrays, case = self.lay_out(question)
        values = {role: self.frame.lay(array) for role, array in arrays.items()} | self.plain(question)
        if question.mask is not None and question.form is not None:
            values[question.role] = question.form.write(question.mask)
            case = replace(case, mask=question.form.fitting(question.mask))
        answer = self.call(values)
        return self.read(case, answer) or answer

    def call(self, values: Mapping[str, Any]) -> Answer:
        """Call the patient with values by role."""
        bound = self.way.bind(values)
        if bound is None:
            return Answer()
        return self.patient.call(*bound, library=self.library, still=self.still)

    def lay_out(self, question: Question) -> tuple[dict[str, Array], Case]:
        """The arrays by role, in the order batch, (head,) time, width; and the case for the formula."""
        arrays, case = self._projected(question) if self.projection else self._direct(question)
        return arrays, replace(case, causal=question.causal)

    def plain(self, question: Question) -> dict[str, Any]:
        """What is not an array: numbers of heads, widths, switches, and the maps of a function that takes them."""
        heads, key_heads = (self.heads, self.key_heads) if self.projection else (self.frame.heads, self.frame.heads)
        key_heads = KEY_HEADS if question.grouped else key_heads
        values: dict[str, Any] = dict(self.fixed) | {"heads": heads, "key_heads": key_heads}
        width = WIDTH if self.projection is None else self.projection.query.weight.shape[1] // heads
        values |= {"repeats": heads // key_heads, "d_head": width, "d_model": heads * width}
        if self.way.has("causal"):
            values["causal"] = question.causal
        return values | self._own_weights()

    def read(self, case: Case, answer: Answer) -> Observation | None:
        """The part of a result that has the shape of a context: as the queries were, or with heads merged."""
        if answer.fault is not None:
            return None
        ways = [(case, self.finish)]
        if self.projection is None and "h" in self.frame.axes:
            ways.append((replace(case, merged=True), lambda context: context))
        for each, finish in ways:
            wanted = self._shape(each)
            for path in sorted(answer.arrays, key=len):
                if answer.arrays[path].shape == wanted:
                    return Observation(each, answer.arrays[path].astype(np.float64), finish)
        return None

    def finish(self, context: Array) -> Array:
        """From a context of the formula to what the patient gives back."""
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
        frame, key_heads = self.frame, KEY_HEADS if question.grouped else self.frame.heads
        sizes = {"query": (frame.heads, question.queries), "key": (key_heads, question.keys)}
        sizes["value"] = sizes["key"]
        arrays = {
            role: self.numbers.array(role, frame.batch, time, heads * WIDTH)
            if frame.flat
            else self.numbers.array(role, frame.batch, heads, time, WIDTH)
            for role, (heads, time) in sizes.items()
        }
        case = Case(arrays["query"], arrays["key"], arrays["value"], frame.heads, key_heads, frame.flat)
        return arrays, case

    def _projected(self, question: Question) -> tuple[dict[str, Array], Case]:
        assert self.projection is not None
        maps = self.projection
        x = self.numbers.array("x", self.frame.batch, question.queries, maps.width)
        key = value = x
        if self.way.has("query", "key", "value"):
            key, value = (
                self.numbers.array(name, self.frame.batch, question.keys, each.weight.shape[0])
                for name, each in (("key", maps.key), ("value", maps.value))
            )
        elif self.way.has("source"):
            key = value = self.numbers.array("source", self.frame.batch, question.keys, maps.key.weight.shape[0])
        case = Case(maps.query(x), maps.key(key), maps.value(value), self.heads, self.key_heads, flat=True)
        return {"x": x, "query": x, "key": key, "value": value, "source": key}, case

    def _own_weights(self) -> dict[str, Any]:
        """A function that takes its maps as arguments gets those that the projection is made of."""
        if self.projection is None or not self.way.has("w_q"):
            return {}
        maps = {"w_q": self.projection.query, "w_k": self.projection.key, "w_v": self.projection.value}
        if self.projection.output is not None:
            maps["w_o"] = self.projection.output
        return {name: each.weight.T.copy() if self.turned else each.weight for name, each in maps.items()}
