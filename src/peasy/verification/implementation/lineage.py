"""Lineage of queries, keys and values in a trace: which layer made them, and what was done on the way."""

from dataclasses import dataclass, field

import numpy as np

from peasy.verification.implementation.core import Array, index_maps, is_activation, replay_op
from peasy.verification.implementation.trace import INPUT, LAYOUTS, PARAMETER, PRODUCTS, Op, Trace, is_number, to_float

_NORMS = frozenset(
    [
        "native_layer_norm", "native_group_norm", "native_batch_norm", "rms_norm", "_fused_rms_norm", "norm", "rsqrt",
        "linalg_vector_norm", "layer_norm", "cudnn_batch_norm", "_native_batch_norm_legit_no_training",
    ]
)  # fmt: skip
_NONLINEAR = frozenset(
    [
        "relu", "relu_", "gelu", "silu", "sigmoid", "tanh", "elu", "leaky_relu", "exp", "softplus", "hardtanh", "log",
        "_softmax", "square", "pow", "abs", "clamp", "sin", "cos", "hardswish", "mish", "celu", "selu", "sqrt",
    ]
)  # fmt: skip
_ROTATION = frozenset({"view_as_complex", "view_as_real", "complex", "polar", "neg", "_conj"})


@dataclass(eq=False)
class Lineage:
    """What led to an operand: a number it was multiplied by, products with layers, kinds of operations on the way."""

    factor: float = 1.0
    folded: float = 1.0
    """Number by which the call multiplies the weights of the nearest layer."""
    learned_factor: bool = False
    consistent: bool = True
    scale_ops: list[Op] = field(default_factory=list)
    projections: list[Op] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    ops: list[Op] = field(default_factory=list)

    def merge(self, others: "list[Lineage]") -> "Lineage":
        """Join the lineages of the parts of one tensor."""
        for other in others:
            self.projections += [op for op in other.projections if op not in self.projections]
            self.scale_ops += [op for op in other.scale_ops if op not in self.scale_ops]
            self.inputs |= other.inputs
            self.kinds |= other.kinds
            self.ops += [op for op in other.ops if op not in self.ops]
            self.learned_factor |= other.learned_factor
            self.consistent &= other.consistent
        factors = {round(other.factor, 9) for other in others}
        if len(factors) == 1:
            self.factor *= others[0].factor
            self.folded = others[0].folded
        elif len(factors) > 1:
            self.consistent = False
        return self


def lineage(trace: Trace, source: tuple[int, int], memory: dict[int, Lineage] | None = None) -> Lineage:
    """Walk back from an operand to the nearest products with parameters, norms or inputs."""
    memory = {} if memory is None else memory
    if source[0] not in memory:
        memory[source[0]] = Lineage()  # a cycle cannot be, but an in-place operation may refer to itself
        memory[source[0]] = _walk(trace, trace.ops[source[0]], memory)
    return memory[source[0]]


def _walk(trace: Trace, op: Op, memory: dict[int, Lineage]) -> Lineage:
    here = Lineage(ops=[op])
    if op.name == INPUT:
        here.inputs.add(op.root)
        return here
    activations = [source for source in op.inputs if is_activation(trace.ops[source[0]])]
    if op.name in PRODUCTS:
        here.projections.append(op)
        if len(activations) > 1:
            here.kinds.add("product")
        for source, _ in op.inputs[-2:]:
            here.folded *= _number_before(trace, trace.ops[source])
        return here
    if op.name in _NORMS:
        return _past_norm(trace, here, activations, memory)
    if op.name == "convolution":
        if all(size == 1 for size in op.values[1].shape[2:]):
            here.projections.append(op)  # the same linear layer for every token
        else:
            here.kinds.add("convolution")
        return here
    if op.name in _NONLINEAR:
        here.kinds.add(f"nonlinear {op.name.strip('_')}")
        return here
    parents = list(activations)
    if op.name.rstrip("_") in ("mul", "div") and not _multiply(trace, op, here, parents):
        return _past_norm(trace, here, activations, memory)
    if op.name in _ROTATION:
        here.kinds.add("table")
    elif op.name in LAYOUTS or op.name.rstrip("_") in ("add", "sub", "mul", "div", "native_dropout", "addcmul"):
        pass
    elif not activations:
        return here
    else:
        here.kinds.add(f"unknown {op.name}")
    return here.merge([lineage(trace, parent, memory) for parent in parents])


def _number_before(trace: Trace, op: Op) -> float:
    """Return the number by which a parameter was multiplied before this record, through views; 1 if by none."""
    number = number_of(trace, op) if op.name.rstrip("_") in ("mul", "div") else None
    if is_activation(op) or not op.inputs or (number is None and op.name not in LAYOUTS):
        return 1.0
    return (number[0] if number else 1.0) * _number_before(trace, trace.ops[op.inputs[0][0]])


def _past_norm(trace: Trace, here: Lineage, sources: list[tuple[int, int]], memory: dict[int, Lineage]) -> Lineage:
    """Note a norm: numbers before it have no effect, but the layers before it still made the operand."""
    here.kinds.add("norm")
    for source in sources:
        before = lineage(trace, source, memory)
        here.projections += [op for op in before.projections if op not in here.projections]
        here.inputs |= before.inputs
    return here


def _multiply(trace: Trace, op: Op, here: Lineage, activations: list[tuple[int, int]]) -> bool:
    """Note a multiplication or division; False if the walk ends here (a norm)."""
    factor = number_of(trace, op)
    if factor is not None:
        here.factor, here.scale_ops = factor[0], [op]
        here.learned_factor = factor[1]
        return True
    if len(activations) > 1:
        if any(_same_for_all_channels(value) for value in op.values):
            here.kinds.add("norm")
            return False
        here.kinds.add("unknown product of activations")
        return True
    others = [source for source in op.inputs if source not in activations]
    if others and any(root.startswith(PARAMETER) for index, _ in others for root in trace.ops[index].roots):
        here.kinds.add("gain")
    elif others:
        here.kinds.add("table")
    return True


def _same_for_all_channels(value: object) -> bool:
    """Return whether a tensor has one number per token, as the length of a vector has."""
    array = to_float(value)
    return array.ndim > 0 and (
        array.shape[-1] == 1 or bool(np.all(np.ptp(array, axis=-1) < 1e-6 * np.abs(array).max()))
    )


def number_of(trace: Trace, op: Op) -> tuple[float, bool] | None:
    """Return the number by which an operation multiplies an activation, and whether it is learned; None otherwise."""
    sign = -1 if op.name.startswith("div") else 1
    if len(op.inputs) == 1:
        numbers = [value for value in op.scalars if is_number(value)]
        return (float(numbers[0]) ** sign, False) if numbers and numbers[0] else None
    if len(op.inputs) != 2:
        return None
    for (source, _), value in zip(op.inputs, op.values, strict=True):
        other = trace.ops[source]
        if not is_activation(other) and int(np.prod(tuple(value.shape))) == 1:
            number = float(to_float(value).reshape(-1)[0])
            learned = any(root.startswith(PARAMETER) for root in other.roots)
            return (number**sign, learned) if number and (sign == 1 or value is op.values[1]) else None
    constants = [
        value for (source, _), value in zip(op.inputs, op.values, strict=True) if not is_activation(trace.ops[source])
    ]
    if len(constants) == 1 and constants[0] is op.values[-1]:
        unique = np.unique(to_float(constants[0]))
        if len(unique) == 1 and unique[0]:
            return float(unique[0]) ** sign, any(
                root.startswith(PARAMETER) for source, _ in op.inputs if not is_activation(trace.ops[source])
                for root in trace.ops[source].roots
            )  # fmt: skip
    return None


def parameters_of(trace: Trace, products: list[Op]) -> list[str]:
    """Return the names of the parameters of some products, matrices only."""
    names = []
    for op in products:
        for source, _ in op.inputs[1:2] if op.name == "convolution" else op.inputs[-2:]:
            if not is_activation(trace.ops[source]):
                names += [root.partition(":")[2] for root in sorted(trace.ops[source].roots)]
    return list(dict.fromkeys(names))


def columns_of(trace: Trace, projection: Op, source: tuple[int, int]) -> Array | None:
    """Return which columns of a projection's result an operand is made of; None if they cannot be followed."""
    if projection.name == "convolution":
        return None
    path = [op for op in trace.ops[projection.index :] if op.index <= source[0]]
    reached, kept = {projection.index}, [projection]
    for op in path[1:]:
        if op.name not in PRODUCTS and any(index in reached for index, _ in op.inputs):
            reached.add(op.index)
            kept.append(op)
    index = index_maps(kept).get(source)
    if index is None:
        return None
    width = int(projection.outputs[0].shape[-1])
    return np.unique(index[index >= 0] % width)


def first_mixing_op(trace: Trace, start: Op, codes: Array, stop: int) -> Op | None:
    """Return the first view after `start` that mixes tokens; `codes` are the times of the numbers of `start`."""
    maps: dict[tuple[int, int], Array] = {(start.index, 0): codes}
    for op in trace.ops[start.index + 1 : stop + 1]:
        inputs = {number: maps[source] for number, source in enumerate(op.inputs) if source in maps}
        if not inputs or op.name in PRODUCTS:
            continue
        results = replay_op(op, inputs)
        for number, result in enumerate(results):
            if result is None:
                continue
            maps[op.index, number] = result
            if op.name in LAYOUTS and not in_order(result) and all(in_order(each) for each in inputs.values()):
                return op
    return None


def in_order(times: Array) -> bool:
    """Return whether known times vary along one axis at most: tokens are neither mixed nor spread over heads."""
    known = times >= 0
    low, high = np.where(known, times, times.max(initial=0)), np.where(known, times, 0)
    varying = [axis for axis in range(times.ndim) if bool((low.min(axis) < high.max(axis)).any())]
    return len(varying) <= 1
