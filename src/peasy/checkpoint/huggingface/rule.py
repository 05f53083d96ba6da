"""Weight map: two-way mapping of state-dict names between an external format and peasy, with invertible transforms.

A rule pairs external names with peasy's; `{layer}` and other words in braces stand for a number. Pairs are resolved
from the names of a peasy model; the external names follow, so that missing and unexpected weights are known
before a tensor is read.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from peasy.errors import InvalidInput


@dataclass(frozen=True)
class Change:
    """Invertible transform of a rule's tensors, external to peasy; the inverse is exact. This one is the identity."""

    def inward(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        """Return peasy's tensors from the external ones."""
        return list(theirs)

    def back(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Return the external tensors from peasy's."""
        return list(ours)


@dataclass(frozen=True)
class Transpose(Change):
    """Transpose matrices: external [in, out], peasy [out, in]."""

    def inward(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        """Return transposed views."""
        return [tensor.mT for tensor in theirs]

    def back(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Return transposed views."""
        return [tensor.mT for tensor in ours]


@dataclass(frozen=True)
class Split(Change):
    """Split one fused external tensor along `axis` into several of these sizes, each transformed by `then`."""

    sizes: tuple[int, ...]
    axis: int = 0
    then: Change = Change()

    def inward(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        """Return views of the fused tensor."""
        (fused,) = theirs
        return self.then.inward(fused.split(self.sizes, self.axis))

    def back(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Return the fused tensor. On the meta device only its shape is computed: `cat` would load torch's compiler."""
        pieces = self.then.back(ours)
        if not pieces[0].is_meta:
            return [torch.cat(pieces, self.axis)]
        shape = list(pieces[0].shape)
        shape[self.axis] = sum(piece.shape[self.axis] for piece in pieces)
        return [torch.empty(shape, device="meta")]


@dataclass(frozen=True)
class Row(Change):
    """Squeeze an external matrix of one row into a vector."""

    def inward(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        """Return the row as a vector."""
        return [tensor.squeeze(0) for tensor in theirs]

    def back(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Return a matrix of one row."""
        return [tensor.unsqueeze(0) for tensor in ours]


@dataclass(frozen=True)
class Rule:
    """External name or names, peasy's name or names, and the transform between them."""

    theirs: str | tuple[str, ...]
    ours: str | tuple[str, ...]
    change: Change = Change()


def modules(theirs: str, ours: str, names: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return rules for weight and bias of several modules, from external to peasy names, each with its prefix.

    >>> modules("h.{layer}.", "blocks.{layer}.", {"ln_1": "attention_norm"})[0]
    Rule(theirs='h.{layer}.ln_1.weight', ours='blocks.{layer}.attention_norm.weight', change=Change())
    """
    return tuple(
        Rule(f"{theirs}{external}.{kind}", f"{ours}{internal}.{kind}")
        for external, internal in names.items()
        for kind in ("weight", "bias")
    )


@dataclass(frozen=True)
class Pair:
    """A rule with its layer numbers filled in."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    change: Change


@dataclass(frozen=True)
class Table:
    """All rules of a family, and what else its files may contain.

    `copies`: a second name under which some files store a tied weight, and the name it must equal.
    `computed`: buffers that follow from the config (masks, positions); some files store them, they are not read.
    `unused`: weights of parts that peasy does not have; they are reported, not read.
    """

    rules: tuple[Rule, ...]
    copies: Mapping[str, str] = field(default_factory=dict)
    computed: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def pair(table: Table, ours: Iterable[str]) -> list[Pair]:
    """Pair each of peasy's names with its external names; a name without a rule is an error.

    >>> pair(Table((Rule("h.{layer}.w", "blocks.{layer}.weight"),)), ["blocks.3.weight"])
    [Pair(theirs=('h.3.w',), ours=('blocks.3.weight',), change=Change())]
    """
    unpaired, pairs = dict.fromkeys(ours), []
    while unpaired:
        name = next(iter(unpaired))
        resolved = _find(table.rules, name)
        if any(partner not in unpaired for partner in resolved.ours):
            missing = ", ".join(partner for partner in resolved.ours if partner not in unpaired)
            raise InvalidInput(f"{name} must be stored together with {missing}, which the model does not have.")
        for partner in resolved.ours:
            del unpaired[partner]
        pairs.append(resolved)
    return pairs


def bring_in(pairs: Iterable[Pair], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return peasy's tensors from the external ones."""
    return {
        name: tensor
        for match in pairs
        for name, tensor in zip(match.ours, match.change.inward([theirs[name] for name in match.theirs]), strict=True)
    }


def take_out(pairs: Iterable[Pair], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the external tensors from peasy's."""
    return {
        name: tensor
        for match in pairs
        for name, tensor in zip(match.theirs, match.change.back([ours[name] for name in match.ours]), strict=True)
    }


def matches(pattern: str, name: str) -> dict[str, str] | None:
    """Return the numbers for which `pattern` equals `name`, or None.

    >>> matches("h.{layer}.bias", "h.12.bias")
    {'layer': '12'}
    """
    match = _compile(pattern).fullmatch(name)
    return match.groupdict() if match else None


def _find(rules: tuple[Rule, ...], name: str) -> Pair:
    for rule in rules:
        for pattern in _several(rule.ours):
            numbers = matches(pattern, name)
            if numbers is not None:
                external = tuple(template.format(**numbers) for template in _several(rule.theirs))
                internal = tuple(template.format(**numbers) for template in _several(rule.ours))
                return Pair(external, internal, rule.change)
    raise InvalidInput(f"The weight map has no rule for {name}.", hint="This model family has no such weight.")


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"\{(\w+)\}", pattern)
    return re.compile(
        "".join(rf"(?P<{piece}>0|[1-9]\d{{0,5}})" if i % 2 else re.escape(piece) for i, piece in enumerate(pieces))
    )


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
