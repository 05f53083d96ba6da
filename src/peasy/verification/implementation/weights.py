"""Identifies the query, key, value and output projections of a module by the names of its weights."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from peasy.verification.implementation.variant import Array

_IGNORED_WORDS = {
    "w", "proj", "linear", "layer", "to", "weight", "matrix", "net", "fc", "lin", "in", "project", "projection",
    "transform", "map", "dense", "attn", "attention",
}  # fmt: skip
_WORDS_BY_PART = {
    "q": {"q", "query", "queries", "wq", "wquery"},
    "k": {"k", "key", "keys", "wk", "wkey"},
    "v": {"v", "value", "values", "wv", "wvalue"},
    "o": {"o", "out", "output", "wo", "c", "combine", "final", "last", "merge", "outproj", "unify", "unifyheads"},
    "qkv": {"qkv", "wqkv", "kqv"},
    "kv": {"kv", "wkv"},
}
_PART_BY_NAME = {
    "c_attn": "qkv", "in_proj": "qkv", "in_proj_weight": "qkv", "query_key_value": "qkv", "attn": "qkv",
    "c_proj": "o", "proj": "o", "dense": "o", "fc": "o", "fc_out": "o", "linear": "o", "projection": "o",
    "out_linear": "o", "w_concat": "o",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class LinearMap:
    """Linear map x · weight + bias, with `weight` `[in, out]`."""

    weight: Array
    bias: Array | None = None

    def __call__(self, x: Array) -> Array:
        """Apply the map."""
        product = x @ self.weight
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
        return self.query.weight.shape[0]


def read_projections(state: Mapping[str, Array]) -> list[QKVProjections]:
    """Return the likely projections of a module's weights, best first; empty if the names are unknown."""
    return [
        projection
        for transposed in (False, True)
        for projection in _iter_projections(state, transposed)
        if _shapes_match(projection)
    ]


def _shapes_match(projections: QKVProjections) -> bool:
    """Return whether the shapes match: queries with keys, values with the output projection."""
    query, key, value = (linear.weight.shape[1] for linear in (projections.query, projections.key, projections.value))
    return (
        query % key == 0
        and key == value
        and (projections.output is None or projections.output.weight.shape[0] == query)
    )


def _iter_projections(state: Mapping[str, Array], transposed: bool) -> Iterator[QKVProjections]:
    linears = _linear_maps(state, transposed)
    parts: dict[str, list[str]] = {}
    for stem in linears:
        part = _guess_part(stem, list(linears))
        if part:
            parts.setdefault(part, []).append(stem)
    names = {part: ", ".join(stems) for part, stems in parts.items()}
    joined = {part: _concatenate([linears[stem] for stem in stems]) for part, stems in parts.items()}
    output = joined.get("o")
    if {"q", "k", "v"} <= joined.keys():
        yield QKVProjections(joined["q"], joined["k"], joined["v"], output, f"{names['q']}; {names['k']}; {names['v']}")
    elif {"q", "kv"} <= joined.keys():
        key, value = _split(joined["kv"], 2)
        yield QKVProjections(joined["q"], key, value, output, f"{names['q']}; {names['kv']}")
    elif "qkv" in joined and joined["qkv"].weight.shape[1] % 3 == 0:
        query, key, value = _split(joined["qkv"], 3)
        yield QKVProjections(query, key, value, output, f"{names['qkv']} (fused query/key/value)")


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
    if last in _PART_BY_NAME:
        return _PART_BY_NAME[last]
    name = "".join(word for word in last.split("_") if word not in _IGNORED_WORDS)
    return next((part for part, words in _WORDS_BY_PART.items() if name in words), None)


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
