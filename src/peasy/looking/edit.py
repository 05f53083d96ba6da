"""Edits in words: what to switch off, cut, make even or replace. They are data; `change.py` makes them happen."""

from collections.abc import Iterable
from dataclasses import dataclass

from peasy.errors import InvalidInput

Word = str | int
"""A word of the text, or the place of a token."""


@dataclass(frozen=True)
class Off:
    """Switch off one head, a part of a layer (attention, cross_attention, feedforward), or a whole layer."""

    layer: int
    head: int | None = None
    part: str | None = None
    stack: str | None = None

    def says(self) -> str:
        """What is changed, in words."""
        what = f"head {self.head}" if self.head is not None else (self.part or "all").replace("_", "-")
        return f"layer {self.layer}, {what} switched off{_of(self.stack)}"


@dataclass(frozen=True)
class Cut:
    """Cut edges: this query may not look at this key any more; what is left is shared among the others."""

    query: Word
    key: Word
    layer: int | None = None
    head: int | None = None
    part: str = "attention"
    stack: str | None = None

    def says(self) -> str:
        """What is changed, in words."""
        return f'"{self.query}" may not look at "{self.key}" in {_where(self.layer, self.head)}{_of(self.stack)}'


@dataclass(frozen=True)
class Even:
    """Give every key that a head may look at the same weight."""

    layer: int
    head: int | None = None
    part: str = "attention"
    stack: str | None = None

    def says(self) -> str:
        """What is changed, in words."""
        return f"{_where(self.layer, self.head)} looks everywhere alike{_of(self.stack)}"


@dataclass(frozen=True)
class Patch:
    """Replace activations by those of another text, at the same places.

    `step`: "context" (what heads found), "output" (what a part adds to the stream) or "residual" (the stream where
    it enters a layer). `rows`: words or places; None = all, for which both texts need equally many tokens.
    """

    text: str
    layer: int
    head: int | None = None
    step: str = "context"
    rows: tuple[Word, ...] | None = None
    part: str = "attention"
    stack: str | None = None

    def says(self) -> str:
        """What is changed, in words."""
        where = "everywhere" if self.rows is None else "at " + ", ".join(map(str, self.rows))
        return f'{self.step} of {_where(self.layer, self.head)} {where} from "{self.text}"{_of(self.stack)}'


Edit = Off | Cut | Even | Patch


def off(layer: int, head: int | None = None, *, part: str | None = None, stack: str | None = None) -> Off:
    """Switch off a head, a part of a layer, or a whole layer.

    >>> off(layer=2, head=3).says()
    'layer 2, head 3 switched off'
    """
    return Off(layer, head, part, stack)


def read_off(told: Iterable[str]) -> list[Off]:
    """Layers and heads as they are typed: 2.3 is layer 2, head 3; 2 is the whole layer.

    >>> read_off(["2.3", "1"])
    [Off(layer=2, head=3, part=None, stack=None), Off(layer=1, head=None, part=None, stack=None)]
    """
    found = []
    for each in told:
        layer, _, head = each.partition(".")
        if not layer.isdecimal() or not (head.isdecimal() or each == layer):
            raise InvalidInput(f'"{each}" names no head.', hint="2.3 is layer 2, head 3; 2 is the whole layer.")
        found.append(Off(int(layer), int(head) if head else None))
    return found


def read_cut(told: str) -> tuple[Word, Word]:
    """Two words as they are typed: who may not look, and at whom; numbers are places.

    >>> read_cut("it:pizza"), read_cut("8:1")
    (('it', 'pizza'), (8, 1))
    """
    query, colon, key = told.partition(":")
    if not (query and colon and key):
        raise InvalidInput(
            f'"{told}" names no two words.', hint="it:pizza: the word it may not look at the word pizza."
        )
    return _word(query), _word(key)


def _word(told: str) -> Word:
    return int(told) if told.isdecimal() else told


def cut(query: Word, key: Word, *, layer: int | None = None, head: int | None = None, part: str = "attention") -> Cut:
    """Cut an edge: `query` may not look at `key` any more, in one head or in all.

    >>> cut("it", "pizza", layer=2).says()
    '"it" may not look at "pizza" in layer 2'
    """
    return Cut(query, key, layer, head, part)


def even(layer: int, head: int | None = None, *, part: str = "attention") -> Even:
    """Make a head look everywhere alike.

    >>> even(layer=2, head=3).says()
    'layer 2, head 3 looks everywhere alike'
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
    """Take activations from another text.

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
