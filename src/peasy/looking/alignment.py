"""Which source words an answer was written from, and which head aligns best."""

from collections.abc import Collection, Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.looking.label import Tokens
from peasy.looking.record import Alignment, AlignmentScore, Capture, Look
from peasy.looking.words import merge
from peasy.nn.place import Place

Known = Sequence[tuple[int, int]]
"""(source word, answer word), both counted from 0, blanks and ends left out."""


def read_known(text: str) -> tuple[tuple[int, int], ...]:
    """Pairs as word aligners write them: 0-0 1-2, the source word first, counted from 0.

    >>> read_known("0-0 1-2")
    ((0, 0), (1, 2))
    """
    pairs = [pair.partition("-") for pair in text.split()]
    for ours, dash, theirs in pairs:
        if not (ours.isdecimal() and theirs.isdecimal()):
            raise InvalidInput(
                f'"{ours}{dash}{theirs}" is no pair of words.', hint='Source word, dash, answer word: "0-0 1-2".'
            )
    if not pairs:
        raise InvalidInput("No pair of words is given.", hint='For example "0-0 1-2": source word, dash, answer word.')
    return tuple((int(ours), int(theirs)) for ours, _, theirs in pairs)


def align(
    look: Look,
    written: Tokens,
    known: Known = (),
    *,
    place: Place | None = None,
    head: int | None = None,
    trusted: tuple[int, int] | None = None,
) -> Alignment:
    """The alignment of the best head, or of the one that is named.

    `written` are the tokens that came out: the weights of a token are those of the step that wrote it, which read the
    token before it. `trusted` is the layer and head that aligned best on many other texts: one text alone may mislead.
    """
    captures = [c for c in look.captures if c.step == "weights" and c.place.part == "cross_attention"]
    if not captures:
        raise InvalidInput(f"{look.model} has no attention to a source.", hint="Only translators align.")
    tables = {(c.place, h): _by_words(c, i, look.tokens, written) for c in captures for i, h in enumerate(c.heads)}
    links = _links(known, look.tokens, written)
    scores = sorted((_score(*key, table, links) for key, table in tables.items()), key=lambda one: _rank(one, trusted))
    chosen = next((s for s in scores if (place in (None, s.place)) and head in (None, s.head)), None)
    if chosen is None:
        raise _missing(tables.keys(), place, head)
    weights = tables[chosen.place, chosen.head]
    pairs = tuple((source, target) for target, sources in sorted(links.items()) for source in sorted(sources))
    return Alignment(
        look.model, look.tokens, written, weights, chosen.place, chosen.head, tuple(scores), pairs, look.caveat
    )


def _rank(one: AlignmentScore, trusted: tuple[int, int] | None) -> tuple[bool, float, float]:
    """Best first; where several heads find all known pairs, the one that moves along most sharply."""
    return (one.place.layer, one.head) != trusted, -one.score, -one.monotony * one.sharpness


def _missing(keys: Collection[tuple[Place, int]], place: Place | None, head: int | None) -> InvalidInput:
    what, asked, most = "head", head, max(number for _, number in keys)
    if place is not None and place not in {there for there, _ in keys}:
        what, asked, most = "layer", place.layer, max(there.layer for there, _ in keys)
    return InvalidInput(f"There is no {what} {asked}.", hint=f"Here they go from 0 to {most}.")


def _by_words(capture: Capture, index: int, source: Tokens, written: Tokens) -> np.ndarray:
    rows = capture.array[index][: len(written)]
    return merge(rows, written, source)


def _links(known: Known, source: Tokens, written: Tokens) -> dict[int, set[int]]:
    """For each known target word its source words, by their numbers among the shown words."""
    left, right = _counted(source), _counted(written)
    found: dict[int, set[int]] = {}
    for ours, theirs in known:
        for number, side, what in ((ours, left, "source"), (theirs, right, "answer")):
            if number not in side:
                told = f"It has {len(side)}: {' '.join((source if side is left else written).words[:20])}"
                raise InvalidInput(f"The {what} has no word {number}.", hint=told)
        found.setdefault(right[theirs], set()).add(left[ours])
    return found


def _counted(tokens: Tokens) -> dict[int, int]:
    """The place among the shown words of each word that counts; where none is known to be one, all do."""
    found = {number: at for at, number in enumerate(tokens.numbers) if number is not None}
    return found or {at: at for at in range(len(tokens.words))}


def _score(place: Place, head: int, table: np.ndarray, links: dict[int, set[int]]) -> AlignmentScore:
    best = table.argmax(axis=1)
    right = float(np.mean([best[target] in sources for target, sources in links.items()])) if links else None
    monotony, sharpness = _monotony(best), float(table.max(axis=1).mean())
    return AlignmentScore(place, head, right, monotony, sharpness, monotony * sharpness if right is None else right)


def _monotony(best: np.ndarray) -> float:
    """How far the place looked at moves with the place written: their correlation, 0 for one that stands still."""
    if len(best) < 2 or best.min() == best.max():
        return 0.0
    return max(0.0, float(np.corrcoef(np.arange(len(best)), best)[0, 1]))
