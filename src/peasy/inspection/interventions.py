"""Intervention specs as plain data: head ablation, cut attention edges, uniform attention, activation patching."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from peasy.errors import InvalidInput

TokenRef = str | int
"""A word of the text, or the position of a token."""


@dataclass(frozen=True)
class AblateHead:
    """Zero ablation of one head, a part of a layer (attention, cross_attention, feedforward), or a whole layer.

    >>> off(layer=2, head=3).summary()
    'layer 2, head 3 ablated'
    """

    layer: int
    head: int | None = None
    part: str | None = None
    stack: str | None = None

    def summary(self) -> str:
        """Describe the intervention."""
        what = f"head {self.head}" if self.head is not None else (self.part or "all").replace("_", "-")
        return f"layer {self.layer}, {what} ablated{_describe_stack(self.stack)}"


@dataclass(frozen=True)
class Cut:
    """Cut attention edge: `query` no longer attends to `key`, in one head or in all; other weights are renormalised.

    >>> cut("it", "pizza", layer=2).summary()
    '"it" cannot attend to "pizza" in layer 2'
    """

    query: TokenRef
    key: TokenRef
    layer: int | None = None
    head: int | None = None
    part: str = "attention"
    stack: str | None = None

    def summary(self) -> str:
        """Describe the intervention."""
        where = _describe_head(self.layer, self.head) + _describe_stack(self.stack)
        return f'"{self.query}" cannot attend to "{self.key}" in {where}'


@dataclass(frozen=True)
class UniformAttention:
    """Uniform attention: a head gives the same weight to every visible key.

    >>> even(layer=2, head=3).summary()
    'layer 2, head 3 attends uniformly'
    """

    layer: int
    head: int | None = None
    part: str = "attention"
    stack: str | None = None

    def summary(self) -> str:
        """Describe the intervention."""
        return f"{_describe_head(self.layer, self.head)} attends uniformly{_describe_stack(self.stack)}"


@dataclass(frozen=True)
class Patch:
    """Activation patching: replace activations by those of another text at the same positions.

    `step`: "context" (output of the heads), "output" (what a sublayer adds to the residual stream) or "residual" (the
    residual stream before a layer). `rows`: words or positions; None = all, which needs equally many tokens in both.

    >>> patch("The soup came out", layer=1, step="residual", rows=[1]).summary()
    'residual of layer 1 at 1 from "The soup came out"'
    """

    text: str
    layer: int
    head: int | None = None
    step: str = "context"
    rows: Sequence[TokenRef] | None = None
    part: str = "attention"
    stack: str | None = None

    def summary(self) -> str:
        """Describe the intervention."""
        where = "all positions" if self.rows is None else ", ".join(map(str, self.rows))
        what = f"{self.step} of {_describe_head(self.layer, self.head)}"
        return f'{what} at {where} from "{self.text}"{_describe_stack(self.stack)}'


InterventionSpec = AblateHead | Cut | UniformAttention | Patch

off, cut, even, patch = AblateHead, Cut, UniformAttention, Patch
"""Short names for use in calls: `peasy.look(model, text, edit=peasy.off(layer=2, head=3))`."""


def parse_ablations(texts: Iterable[str]) -> list[AblateHead]:
    """Parse layers and heads: 2.3 is layer 2, head 3; 2 is the whole layer.

    >>> parse_ablations(["2.3", "1"])
    [AblateHead(layer=2, head=3, part=None, stack=None), AblateHead(layer=1, head=None, part=None, stack=None)]
    """
    ablations = []
    for text in texts:
        layer, _, head = text.partition(".")
        if not layer.isdecimal() or not (head.isdecimal() or text == layer):
            raise InvalidInput(f'"{text}" is not a head.', hint="2.3 is layer 2, head 3; 2 is the whole layer.")
        ablations.append(AblateHead(int(layer), int(head) if head else None))
    return ablations


def parse_cut(text: str) -> tuple[TokenRef, TokenRef]:
    """Parse an attention edge query:key; numbers are positions.

    >>> parse_cut("it:pizza"), parse_cut("8:1")
    (('it', 'pizza'), (8, 1))
    """
    query, colon, key = text.partition(":")
    if not (query and colon and key):
        raise InvalidInput(
            f'"{text}" is not a pair query:key.', hint="it:pizza stops the word it from attending to the word pizza."
        )
    return int(query) if query.isdecimal() else query, int(key) if key.isdecimal() else key


def _describe_head(layer: int | None, head: int | None) -> str:
    if layer is None:
        return "every layer" if head is None else f"head {head} of every layer"
    return f"layer {layer}" + ("" if head is None else f", head {head}")


def _describe_stack(stack: str | None) -> str:
    return "" if stack is None else f" ({stack})"
