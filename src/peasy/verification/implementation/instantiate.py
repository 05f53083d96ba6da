"""nn.Module under test: constructor arguments, its projections by the names of its weights, its numbers of heads."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from peasy.errors import InvalidInput
from peasy.verification.implementation import variant as sizes
from peasy.verification.implementation.call_binding import NAMES, ROLE_BY_NAME, CallBinding, roles_of
from peasy.verification.implementation.target import Arg, NamespaceArgument, Target, TargetDescription, TargetFault
from peasy.verification.implementation.variant import Array

_CONSTRUCTOR_VALUES: dict[str, Arg] = {
    "d_model": sizes.D_MODEL, "heads": sizes.NUM_HEADS, "key_heads": sizes.NUM_KV_HEADS, "d_head": sizes.D_HEAD,
    "length": sizes.MAX_SEQ_LEN, "dropout": 0.1, "causal": True, "flag": True, "batch_first": True,
    "repeats": sizes.NUM_HEADS // sizes.NUM_KV_HEADS,
}  # fmt: skip
"""Constructor arguments by role: pairwise different sizes, and dropout, which must have no effect in eval mode."""
_PART_BY_NAME, _WHOLE_PART_BY_NAME = (
    {name: part for part, names in table.items() for name in names.split()}
    for table in (NAMES.weights, NAMES.whole_weights)
)


@dataclass(frozen=True, eq=False)
class LinearMap:
    """Linear map x · weight + bias, with `weight` `[in, out]`."""

    weight: Array
    bias: Array | None = None

    def __call__(self, x: Array) -> Array:
        """Apply the map."""
        product: Array = x @ self.weight
        return product if self.bias is None else product + self.bias


@dataclass(frozen=True, eq=False)
class QKVProjections:
    """Query, key, value and output projections of a module; `description` lists the weights' names."""

    query: LinearMap
    key: LinearMap
    value: LinearMap
    output: LinearMap | None
    description: str

    @property
    def d_in(self) -> int:
        """Input width."""
        return int(self.query.weight.shape[0])

    def shapes_match(self) -> bool:
        """Return whether the shapes match: queries with keys, values with the output projection."""
        query, key, value = (linear.weight.shape[1] for linear in (self.query, self.key, self.value))
        matches_output = self.output is None or self.output.weight.shape[0] == query
        return query % key == 0 and key == value and matches_output


def instantiate_module(
    target: Target, description: TargetDescription, binding: CallBinding | None, seed: int
) -> tuple[TargetDescription, dict[str, Array]]:
    """Return the module's description and its weights by name."""
    kwargs = _constructor_arguments(description, binding) if description.kind == "class" else {}
    made = target.instantiate(kwargs, seed)
    if isinstance(made, TargetFault):
        values = {name: "..." if isinstance(value, NamespaceArgument) else value for name, value in kwargs.items()}
        arguments = ", ".join(f"{name}={value}" for name, value in values.items())
        raise InvalidInput(
            f"{description.name}({arguments}) could not be created: {made.summary()}",
            hint=f'Give the constructor call: --call "{description.name}({sizes.D_MODEL}, {sizes.NUM_HEADS})(x)"',
        )
    return made


def _constructor_arguments(description: TargetDescription, binding: CallBinding | None) -> dict[str, Arg]:
    if binding is not None and binding.constructor_args is not None:
        args, kwargs = binding.constructor_args
        return dict(zip((parameter.name for parameter in description.parameters), args, strict=False)) | dict(kwargs)
    roles = roles_of(description, in_constructor=True)
    arguments: dict[str, Arg] = {}
    for parameter in description.parameters:
        role = roles.get(parameter.name)
        if role == "config":
            arguments[parameter.name] = NamespaceArgument(_config_values())
        elif role is not None and (parameter.required or role in ("dropout", "d_model", "heads", "key_heads")):
            arguments[parameter.name] = _CONSTRUCTOR_VALUES.get(role)
    return arguments


def _config_values() -> dict[str, Arg]:
    """Return the config values under every common name."""
    known = {name: _CONSTRUCTOR_VALUES[role] for name, role in ROLE_BY_NAME.items() if role in _CONSTRUCTOR_VALUES}
    return known | {"bias": True, "attention_bias": True, "use_bias": True, "qkv_bias": True, "vocab_size": 50}


def infer_num_heads(description: TargetDescription, projections: QKVProjections) -> Iterator[tuple[int, int]]:
    """Yield possible (query heads, kv heads): from the module's attributes, else the divisors of its width."""
    width, kv_width = projections.query.weight.shape[1], projections.key.weight.shape[1]
    attributes = description.int_attributes.items()
    named = [value for name, value in attributes if ROLE_BY_NAME.get(name.strip("_").lower()) == "heads"]
    declared = [heads for heads in dict.fromkeys(named) if heads > 0 and width % heads == 0]
    divisors = [1, *(n for n in range(2, min(width, 33)) if width % n == 0)]
    if not declared and "," in projections.description:  # comma-separated names: one projection per head
        declared = [projections.description.partition(";")[0].count(",") + 1]
    for heads in declared or divisors:
        if kv_width * heads % width == 0 and kv_width * heads // width > 0 and heads % (kv_width * heads // width) == 0:
            yield heads, kv_width * heads // width


def read_projections(state: Mapping[str, Array]) -> list[QKVProjections]:
    """Return the likely projections of a module's weights, best first; empty if the names are unknown."""
    projections = [_projections(_linear_maps(state, transposed)) for transposed in (False, True)]
    return [projection for projection in projections if projection is not None and projection.shapes_match()]


def _projections(linears: Mapping[str, LinearMap]) -> QKVProjections | None:
    parts: dict[str, list[str]] = {}
    for stem in linears:
        part = _guess_part(stem, list(linears))
        if part:
            parts.setdefault(part, []).append(stem)
    names = {part: ", ".join(stems) for part, stems in parts.items()}
    joined = {part: _concatenate([linears[stem] for stem in stems]) for part, stems in parts.items()}
    output = joined.get("o")
    if {"q", "k", "v"} <= joined.keys():
        return QKVProjections(joined["q"], joined["k"], joined["v"], output, "; ".join(names[part] for part in "qkv"))
    if {"q", "kv"} <= joined.keys():
        key, value = _split(joined["kv"], 2)
        return QKVProjections(joined["q"], key, value, output, f"{names['q']}; {names['kv']}")
    if "qkv" in joined and joined["qkv"].weight.shape[1] % 3 == 0:
        query, key, value = _split(joined["qkv"], 3)
        return QKVProjections(query, key, value, output, f"{names['qkv']} (fused query/key/value)")
    return None


def _linear_maps(state: Mapping[str, Array], transposed: bool) -> dict[str, LinearMap]:
    """Return linear maps by name. nn.Linear stores `[out, in]`, a bare matrix `[in, out]`; `transposed`: reversed."""
    linears = {}
    for name, array in state.items():
        stem = name.removesuffix(".weight").removesuffix("_weight")
        if name.endswith("bias") or array.ndim not in (2, 3):
            continue
        bias = state.get(f"{stem}.bias", state.get(f"{stem}_bias"))
        if array.ndim == 3:  # one matrix per head
            array = np.moveaxis(array, 0, 1).reshape(array.shape[1], -1)
        elif name.endswith("weight") != transposed:
            array = array.T
        if bias is None or len(bias) == array.shape[1]:
            linears[stem] = LinearMap(array, bias)
    return linears


def _guess_part(stem: str, stems: list[str]) -> str | None:
    parts = stem.split(".")
    while len(parts) > 1 and parts[-1].isdigit():
        siblings = [other for other in stems if other.rpartition(".")[0] == ".".join(parts[:-1])]
        if len(siblings) in (3, 4):  # a list of equal layers, in the order of the paper
            return "qkvo"[siblings.index(stem)]
        parts.pop()
    last = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", parts[-1]).lower()
    name = "".join(word for word in last.split("_") if word not in NAMES.ignored.split())
    return _WHOLE_PART_BY_NAME.get(last) or _PART_BY_NAME.get(name)


def _concatenate(linears: list[LinearMap]) -> LinearMap:
    """Concatenate the linear maps of separate heads."""
    if len(linears) == 1:
        return linears[0]
    biases = [linear.bias for linear in linears if linear.bias is not None]
    weight = np.concatenate([linear.weight for linear in linears], axis=1)
    return LinearMap(weight, np.concatenate(biases) if len(biases) == len(linears) else None)


def _split(linear: LinearMap, count: int) -> list[LinearMap]:
    weights = np.split(linear.weight, count, axis=1)
    biases = [None] * count if linear.bias is None else np.split(linear.bias, count)
    return [LinearMap(weight, bias) for weight, bias in zip(weights, biases, strict=True)]
