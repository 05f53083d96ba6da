"""Intervention specs as plain data: head ablation, cut attention edges, uniform attention, activation patching."""

from collections.abc import Iterable
from dataclasses import dataclass

from peasy.errors import InvalidInput

Word = str | int
"""A word of the text, or the position of a token."""


@dataclass(frozen=True)
class Off:
    """Zero ablation of one head, a part of a layer (attention, cross_attention, feedforward), or a whole layer."""

    layer: int
    head: int | None = None
    part: str | None = None
    stack: str | None = None

    def says(self) -> str:
        """Describe the intervention."""
        what = f"head {self.head}" if self.head is not None else (self.part or "all").replace("_", "-")
        return f"layer {self.layer}, {what} ablated{_of(self.stack)}"


@dataclass(frozen=True)
class Cut:
    """Cut attention edges: this query no longer attends to this key; the other weights are renormalised."""

    query: Word
    key: Word
    layer: int | None = None
    head: int | None = None
    part: str = "attention"
    stack: str | None = None

    def says(self) -> str:
        """Describe the intervention."""
        return f'"{self.query}" cannot attend to "{self.key}" in {_where(self.layer, self.head)}{_of(self.stack)}'


@dataclass(frozen=True)
class Even:
    """Uniform attention: a head gives the same weight to every visible key."""

    layer: int
    head: int | None = None
    part: str = "attention"
    stack: str | None = None

    def says(self) -> str:
        """Describe the intervention."""
        return f"{_where(self.layer, self.head)} attends uniformly{_of(self.stack)}"


@dataclass(frozen=True)
class Patch:
    """Activation patching: replace activations by those of another text at the same positions.

    `step`: "context" (output of the heads), "output" (what a sublayer adds to the residual stream) or "residual" (the
    residual stream before a layer). `rows`: words or positions; None = all, which needs equally many tokens in both.
    """

    text: str
    layer: int
    head: int | None = None
    step: str = "context"
    rows: tuple[Word, ...] | None = None
    part: str = "attention"
    stack: str | None = None

    def says(self) -> str:
        """Describe the intervention."""
        where = "at all positions" if self.rows is None else "at " + ", ".join(map(str, self.rows))
        return f'{self.step} of {_where(self.layer, self.head)} {where} from "{self.text}"{_of(self.stack)}'


Edit = Off | Cut | Even | Patch


def off(layer: int, head: int | None = None, *, part: str | None = None, stack: str | None = None) -> Off:
    """Ablate a head, a part of a layer, or a whole layer.

    >>> off(layer=2, head=3).says()
    'layer 2, head 3 ablated'
    """
    return Off(layer, head, part, stack)


def read_off(told: Iterable[str]) -> list[Off]:
    """Parse layers and heads: 2.3 is layer 2, head 3; 2 is the whole layer.

    >>> read_off(["2.3", "1"])
    [Off(layer=2, head=3, part=None, stack=None), Off(layer=1, head=None, part=None, stack=None)]
    """
    ablations = []
    for text in told:
        layer, _, head = text.partition(".")
        if not layer.isdecimal() or not (head.isdecimal() or text == layer):
            raise InvalidInput(f'"{text}" is not a head.', hint="2.3 is layer 2, head 3; 2 is the whole layer.")
        ablations.append(Off(int(layer), int(head) if head else None))
    return ablations


def read_cut(told: str) -> tuple[Word, Word]:
    """Parse an attention edge query:key; numbers are positions.

    >>> read_cut("it:pizza"), read_cut("8:1")
    (('it', 'pizza'), (8, 1))
    """
    query, colon, key = told.partition(":")
    if not (query and colon and key):
        raise InvalidInput(
            f'"{told}" is not a pair query:key.', hint="it:pizza stops the word it from attending to the word pizza."
        )
    return _word(query), _word(key)


def _word(told: str) -> Word:
    return int(told) if told.isdecimal() else told


def cut(query: Word, key: Word, *, layer: int | None = None, head: int | None = None, part: str = "attention") -> Cut:
    """Cut an attention edge: `query` no longer attends to `key`, in one head or in all.

    >>> cut("it", "pizza", layer=2).says()
    '"it" cannot attend to "pizza" in layer 2'
    """
    return Cut(query, key, layer, head, part)


def even(layer: int, head: int | None = None, *, part: str = "attention") -> Even:
    """Make a head attend uniformly.

    >>> even(layer=2, head=3).says()
    'layer 2, head 3 attends uniformly'
    """
    return Even(layer, head, part)


def patch(
    text: str,
    layer: int,
    head: int | None = None,
    *,
    step: str = "context",
    rows: Iterable[Word] | None = None,
    part: str = "attention",
) -> Patch:
    """Patch activations from another text.

    >>> patch("The soup came out", layer=1, step="residual", rows=[1]).says()
    'residual of layer 1 at 1 from "The soup came out"'
    """
    return Patch(text, layer, head, step, None if rows is None else tuple(rows), part)


def _where(layer: int | None, head: int | None) -> str:
    if layer is None:
        return "every layer" if head is None else f"head {head} of every layer"
    return f"layer {layer}" + ("" if head is None else f", head {head}")


def _of(stack: str | None) -> str:
    return "" if stack is None else f" ({stack})"
