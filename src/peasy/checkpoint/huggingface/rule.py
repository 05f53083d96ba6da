"""Rules between somebody else's weight names and ours: written once, used in both directions.

A rule pairs their names with ours, and may change the tensors on the way by a change that can be taken back.
`{layer}` and other words in braces stand for a number. The pairs are found from our side, the names that a
model has; their side then follows, so that what a file lacks or has too much is known before a tensor is read.
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
    """What happens to the tensors of a rule on the way in; `back` undoes it bit for bit. Here: nothing."""

    def inward(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        """Our tensors from theirs."""
        return list(theirs)

    def back(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Their tensors from ours."""
        return list(ours)


@dataclass(frozen=True)
class Transpose(Change):
    """Their matrix has inputs as rows, ours has outputs as rows."""

    def inward(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        """Each matrix turned; a view, nothing is copied."""
        return [tensor.mT for tensor in theirs]

    def back(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Each matrix turned back."""
        return [tensor.mT for tensor in ours]


@dataclass(frozen=True)
class Split(Change):
    """Their one tensor holds several of ours beside each other, of these sizes along `axis`."""

    sizes: tuple[int, ...]
    axis: int = 0
    then: Change = Change()

    def inward(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        """Views of the one tensor."""
        (whole,) = theirs
        return self.then.inward(whole.split(self.sizes, self.axis))

    def back(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """The one tensor. Of tensors without memory only the shape is wanted: `cat` would load torch's compiler."""
        pieces = self.then.back(ours)
        if not pieces[0].is_meta:
            return [torch.cat(pieces, self.axis)]
        shape = list(pieces[0].shape)
        shape[self.axis] = sum(piece.shape[self.axis] for piece in pieces)
        return [torch.empty(shape, device="meta")]


@dataclass(frozen=True)
class Row(Change):
    """Their vector is a matrix of one row."""

    def inward(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        """The row itself."""
        return [tensor.squeeze(0) for tensor in theirs]

    def back(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """A matrix of one row."""
        return [tensor.unsqueeze(0) for tensor in ours]


@dataclass(frozen=True)
class Rule:
    """Their name or names, ours, and the change between them."""

    theirs: str | tuple[str, ...]
    ours: str | tuple[str, ...]
    change: Change = Change()


def modules(theirs: str, ours: str, names: Mapping[str, str]) -> tuple[Rule, ...]:
    """Rules for the weight and the bias of several modules: their name and ours, each behind its prefix.

    >>> modules("h.{layer}.", "blocks.{layer}.", {"ln_1": "attention_norm"})[0]
    Rule(theirs='h.{layer}.ln_1.weight', ours='blocks.{layer}.attention_norm.weight', change=Change())
    """
    return tuple(
        Rule(f"{theirs}{one}.{kind}", f"{ours}{other}.{kind}")
        for one, other in names.items()
        for kind in ("weight", "bias")
    )


@dataclass(frozen=True)
class Pair:
    """A rule with its numbers filled in."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    change: Change


@dataclass(frozen=True)
class Table:
    """All rules of a family, and what else its files may hold.

    `copies`: a second name under which some files store a tied weight, and the name it must equal.
    `computed`: tensors that follow from the settings (masks, places); some files store them, we do not read them.
    `unused`: weights of parts that peasy does not have; they are told, not read.
    """

    rules: tuple[Rule, ...]
    copies: Mapping[str, str] = field(default_factory=dict)
    computed: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def pair(table: Table, ours: Iterable[str]) -> list[Pair]:
    """Each of our names with its partners on the other side; a name without a rule is an error.

    >>> pair(Table((Rule("h.{layer}.w", "blocks.{layer}.weight"),)), ["blocks.3.weight"])
    [Pair(theirs=('h.3.w',), ours=('blocks.3.weight',), change=Change())]
    """
    left, pairs = dict.fromkeys(ours), []
    while left:
        name = next(iter(left))
        found = _find(table.rules, name)
        if any(partner not in left for partner in found.ours):
            lost = ", ".join(partner for partner in found.ours if partner not in left)
            raise InvalidInput(f"{name} has to go together with {lost}, which the model does not have.")
        for partner in found.ours:
            del left[partner]
        pairs.append(found)
    return pairs


def bring_in(pairs: Iterable[Pair], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors, from theirs."""
    return {
        name: tensor
        for each in pairs
        for name, tensor in zip(each.ours, each.change.inward([theirs[name] for name in each.theirs]), strict=True)
    }


def take_out(pairs: Iterable[Pair], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, from ours."""
    return {
        name: tensor
        for each in pairs
        for name, tensor in zip(each.theirs, each.change.back([ours[name] for name in each.ours]), strict=True)
    }


def matches(pattern: str, name: str) -> dict[str, str] | None:
    """The numbers for which `pattern` is `name`, or None.

    >>> matches("h.{layer}.bias", "h.12.bias")
    {'layer': '12'}
    """
    found = _compile(pattern).fullmatch(name)
    return found.groupdict() if found else None


def _find(rules: tuple[Rule, ...], name: str) -> Pair:
    for rule in rules:
        for pattern in _several(rule.ours):
            numbers = matches(pattern, name)
            if numbers is not None:
                theirs = tuple(each.format(**numbers) for each in _several(rule.theirs))
                return Pair(theirs, tuple(each.format(**numbers) for each in _several(rule.ours)), rule.change)
    raise InvalidInput(f"There is no rule for our weight {name}.", hint="This family has no such part.")


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"\{(\w+)\}", pattern)
    return re.compile(
        "".join(rf"(?P<{piece}>0|[1-9]\d{{0,5}})" if i % 2 else re.escape(piece) for i, piece in enumerate(pieces))
    )


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
