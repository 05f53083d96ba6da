"""Weight map: two-way mapping of state-dict names between an external format and peasy, with invertible transforms.

A rule pairs external names with peasy's; `{layer}` and other words in braces stand for a number. Pairs are resolved
from the names of a peasy model; the external names follow, so that missing and unexpected weights are known
before a tensor is read.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.parameters import Record


class WeightTransform(Record):
    """Transform of a rule's tensors from external to peasy's, and its exact inverse; by default the identity."""

    forward: Callable[[Sequence[Tensor]], list[Tensor]] = field(default=list, repr=False)
    inverse: Callable[[Sequence[Tensor]], list[Tensor]] = field(default=list, repr=False)


def _each(forward: Callable[[Tensor], Tensor], inverse: Callable[[Tensor], Tensor]) -> WeightTransform:
    return WeightTransform(lambda tensors: list(map(forward, tensors)), lambda tensors: list(map(inverse, tensors)))


IDENTITY = WeightTransform()
TRANSPOSE = _each(lambda matrix: matrix.mT, lambda matrix: matrix.mT)
"""Matrices that are [in, out] in the file, [out, in] in peasy."""
ROW_VECTOR = _each(lambda matrix: matrix.squeeze(0), lambda vector: vector.unsqueeze(0))
"""A matrix of one row in the file, a vector in peasy."""
ADD_ONE = _each(lambda weight: weight - 1, lambda weight: weight.float() + 1)
"""Weights of a norm: llama.cpp stores them whole, not as the difference from 1; back is exact up to rounding."""


def interleave_rope(num_heads: int) -> WeightTransform:
    """Return the transform of a query or key matrix from interleaved RoPE order to two halves, head by head."""
    return _each(
        lambda rows: rows.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2),
        lambda rows: rows.unflatten(0, (num_heads, 2, -1)).transpose(1, 2).flatten(0, 2),
    )


def split_fused(sizes: tuple[int, ...], axis: int = 0, inner: WeightTransform = IDENTITY) -> WeightTransform:
    """Return the split of one fused tensor along `axis` into several of these sizes, each transformed by `inner`."""

    def fuse(internal: Sequence[Tensor]) -> list[Tensor]:
        pieces = inner.inverse(internal)
        if not pieces[0].is_meta:
            return [torch.cat(pieces, axis)]
        shape = list(pieces[0].shape)  # on the meta device, `cat` would load torch's compiler
        shape[axis] = sum(piece.shape[axis] for piece in pieces)
        return [torch.empty(shape, device="meta")]

    return WeightTransform(lambda external: inner.forward(external[0].split(sizes, axis)), fuse)


def split_groups(num_groups: int, num_queries: int = 1) -> WeightTransform:
    """Return the split of one tensor of groups: the rows of some query heads, then of one key and one value head."""
    sizes = (num_queries, 1, 1)

    def split(external: Sequence[Tensor]) -> list[Tensor]:
        groups = external[0].unflatten(0, (num_groups, num_queries + 2, -1))
        return [part.flatten(0, 2) for part in groups.split(sizes, 1)]

    def fuse(internal: Sequence[Tensor]) -> list[Tensor]:
        shape = (sum(tensor.shape[0] for tensor in internal), *internal[0].shape[1:])
        if internal[0].is_meta:
            return [internal[0].new_empty(shape)]
        parts = [part.unflatten(0, (num_groups, size, -1)) for part, size in zip(internal, sizes, strict=True)]
        return [torch.cat(parts, 1).reshape(shape)]

    return WeightTransform(split, fuse)


def shared_layers(num_layers: int) -> WeightTransform:
    """Return the transform of one tensor that all layers share; layers that differ cannot be written."""

    def merge(internal: Sequence[Tensor]) -> list[Tensor]:
        if not internal[0].is_meta and any(not torch.equal(internal[0], tensor) for tensor in internal[1:]):
            hint = "Save it in peasy's own format: model.save(folder) in Python."
            raise InvalidInput("The layers of this model differ, and its family stores one for all.", hint=hint)
        return [internal[0]]

    return WeightTransform(lambda external: [external[0]] * num_layers, merge)


class WeightRule(Record):
    """External name or names, peasy's name or names, and the transform between them."""

    external: str | tuple[str, ...]
    internal: str | tuple[str, ...]
    transform: WeightTransform = IDENTITY


def module_rules(external_prefix: str, internal_prefix: str, names: Mapping[str, str]) -> tuple[WeightRule, ...]:
    """Return rules for weight and bias of several modules, from external to peasy names, each with its prefix.

    >>> module_rules("h.{layer}.", "blocks.{layer}.", {"ln_1": "norm"})[0]
    WeightRule(external='h.{layer}.ln_1.weight', internal='blocks.{layer}.norm.weight', transform=WeightTransform())
    """
    return tuple(
        WeightRule(f"{external_prefix}{external}.{kind}", f"{internal_prefix}{internal}.{kind}")
        for external, internal in names.items()
        for kind in ("weight", "bias")
    )


def fused_rules(
    external: str, internal_prefix: str, parts: Sequence[str], transform: WeightTransform
) -> tuple[WeightRule, ...]:
    """Return rules for weight and bias of several modules that are stored as one, such as query, key and value."""
    return tuple(
        WeightRule(f"{external}.{kind}", tuple(f"{internal_prefix}{part}.{kind}" for part in parts), transform)
        for kind in ("weight", "bias")
    )


QUERY_KEY_VALUE = ("attention.query", "attention.key", "attention.value")
_BLOCK = (
    *QUERY_KEY_VALUE, "attention.output", "attention_norm", "feedforward.up", "feedforward.down", "feedforward_norm",
)  # fmt: skip


NORMS = ("attention_norm", "attention_output_norm", "feedforward_norm", "feedforward_output_norm")


def block_names(names: str, own: Sequence[str] = _BLOCK) -> dict[str, str]:
    """Map external names of a block's modules to peasy's: query, key, value, output, norm, up, down, norm; - = none.

    >>> block_names("- - - attn.c_proj ln_1 - - ln_2")
    {'attn.c_proj': 'attention.output', 'ln_1': 'attention_norm', 'ln_2': 'feedforward_norm'}
    """
    return {external: name for external, name in zip(names.split(), own, strict=True) if external != "-"}


class TensorPair(Record):
    """A rule with its layer numbers filled in."""

    external: tuple[str, ...]
    internal: tuple[str, ...]
    transform: WeightTransform


class WeightMap(Record):
    """All rules of a family, and what else its files may contain.

    `tied_copies`: a second name under which some files store a tied weight, and the name it must equal.
    `derived_buffers`: buffers that follow from the config (masks, positions); some files store them, they are not read.
    `unused`: weights of parts that peasy does not have; they are reported, not read.
    """

    rules: tuple[WeightRule, ...]
    tied_copies: Mapping[str, str] = field(default_factory=dict)
    derived_buffers: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def decoder_map(
    prefix: str,
    layers: str,
    names: Mapping[str, str],
    *more: WeightRule,
    embedding: str,
    norm: str,
    position: str = "position_embeddings",
    head: str = "lm_head",
    buffers: Sequence[str] = (),
) -> WeightMap:
    """Return the map of a decoder: embeddings, the modules of its layers, final norm, and a head that may be tied."""
    external = f"{prefix}{layers}.{{layer}}."
    return WeightMap(
        rules=(
            WeightRule(f"{prefix}{embedding}.weight", "embedding.token.weight"),
            WeightRule(f"{prefix}{position}.weight", "embedding.position.weight"),
            *more,
            *module_rules(external, "decoder.blocks.{layer}.", names),
            *module_rules(prefix, "decoder.", {norm: "norm"}),
            WeightRule(f"{head}.weight", "lm_head.weight"),
        ),
        tied_copies={f"{head}.weight": f"{prefix}{embedding}.weight"},
        derived_buffers=tuple(f"{external}{buffer}" for buffer in buffers),
    )


def pair_weights(weight_map: WeightMap, internal_names: Iterable[str]) -> list[TensorPair]:
    """Pair each of peasy's names with its external names; a name without a rule is an error.

    >>> pair_weights(WeightMap((WeightRule("h.{layer}.w", "blocks.{layer}.weight"),)), ["blocks.3.weight"])
    [TensorPair(external=('h.3.w',), internal=('blocks.3.weight',), transform=WeightTransform())]
    """
    unpaired, pairs = dict.fromkeys(internal_names), []
    while unpaired:
        name = next(iter(unpaired))
        resolved = _pair_for(weight_map.rules, name)
        if any(partner not in unpaired for partner in resolved.internal):
            missing = ", ".join(partner for partner in resolved.internal if partner not in unpaired)
            raise InvalidInput(f"{name} must be stored together with {missing}, which the model does not have.")
        for partner in resolved.internal:
            del unpaired[partner]
        pairs.append(resolved)
    return pairs


def import_weights(pairs: Iterable[TensorPair], external: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return peasy's tensors from the external ones."""
    tensors = ((pair, pair.transform.forward([external[name] for name in pair.external])) for pair in pairs)
    return {name: tensor for pair, made in tensors for name, tensor in zip(pair.internal, made, strict=True)}


def export_weights(pairs: Iterable[TensorPair], internal: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the external tensors from peasy's."""
    tensors = ((pair, pair.transform.inverse([internal[name] for name in pair.internal])) for pair in pairs)
    return {name: tensor for pair, made in tensors for name, tensor in zip(pair.external, made, strict=True)}


def match_pattern(pattern: str, name: str) -> dict[str, str] | None:
    """Return the numbers for which `pattern` equals `name`, or None."""
    match = _compile_pattern(pattern).fullmatch(name)
    return match.groupdict() if match else None


def _pair_for(rules: tuple[WeightRule, ...], name: str) -> TensorPair:
    for rule in rules:
        for pattern in _as_tuple(rule.internal):
            numbers = match_pattern(pattern, name)
            if numbers is not None:
                external = tuple(template.format(**numbers) for template in _as_tuple(rule.external))
                internal = tuple(template.format(**numbers) for template in _as_tuple(rule.internal))
                return TensorPair(external, internal, rule.transform)
    raise InvalidInput(f"The weight map has no rule for {name}.", hint="This model family has no such weight.")


@lru_cache(maxsize=4096)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>0|[1-9]\\d{0,5})", re.escape(pattern)))


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
