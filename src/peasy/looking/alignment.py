"""Word alignment from cross-attention, and ranking of heads by how well they align."""

from collections.abc import Collection, Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.looking.label import Tokens
from peasy.looking.record import Alignment, AlignmentScore, Capture, Look
from peasy.looking.words import merge
from peasy.nn.place import Place

Known = Sequence[tuple[int, int]]
"""(source word, target word), both counted from 0, without spaces and special tokens."""


def read_known(text: str) -> tuple[tuple[int, int], ...]:
    """Parse word pairs in Pharaoh format: 0-0 1-2, source word first, counted from 0.

    >>> read_known("0-0 1-2")
    ((0, 0), (1, 2))
    """
    pairs = [pair.partition("-") for pair in text.split()]
    for source, dash, target in pairs:
        if not (source.isdecimal() and target.isdecimal()):
            raise InvalidInput(
                f'"{source}{dash}{target}" is not a pair of word numbers.',
                hint='Write source word, dash, target word: "0-0 1-2".',
            )
    if not pairs:
        raise InvalidInput("No word pair is given.", hint='For example "0-0 1-2": source word, dash, target word.')
    return tuple((int(source), int(target)) for source, _, target in pairs)


def align(
    look: Look,
    written: Tokens,
    known: Known = (),
    *,
    place: Place | None = None,
    head: int | None = None,
    trusted: tuple[int, int] | None = None,
) -> Alignment:
    """Return the alignment of the best head, or of the given one.

    `target`: the generated tokens; the weights of a token are those of the step that produced it, whose input was the
    token before. `preferred_head`: (layer, head) that aligned best on many texts, since one text may mislead.
    """
    captures = [c for c in look.captures if c.step == "weights" and c.place.part == "cross_attention"]
    if not captures:
        raise InvalidInput(f"{look.model} has no cross-attention.", hint="Alignment needs an encoder-decoder model.")
    tables = {(c.place, h): _by_words(c, i, look.tokens, written) for c in captures for i, h in enumerate(c.heads)}
    links = _links(known, look.tokens, written)
    scores = sorted((_score(*key, table, links) for key, table in tables.items()), key=lambda s: _rank(s, trusted))
    chosen = next((s for s in scores if (place in (None, s.place)) and head in (None, s.head)), None)
    if chosen is None:
        raise _missing(tables.keys(), place, head)
    weights = tables[chosen.place, chosen.head]
    pairs = tuple((source_word, word) for word, sources in sorted(links.items()) for source_word in sorted(sources))
    return Alignment(
        look.model, look.tokens, written, weights, chosen.place, chosen.head, tuple(scores), pairs, look.caveat
    )


def _rank(one: AlignmentScore, trusted: tuple[int, int] | None) -> tuple[bool, float, float]:
    """Sort key, best first; ties in accuracy go to the more monotonic and sharper head."""
    return (one.place.layer, one.head) != trusted, -one.score, -one.monotony * one.sharpness


def _missing(keys: Collection[tuple[Place, int]], place: Place | None, head: int | None) -> InvalidInput:
    what, index, last = "head", head, max(number for _, number in keys)
    if place is not None and place not in {known_path for known_path, _ in keys}:
        what, index, last = "layer", place.layer, max(known_path.layer for known_path, _ in keys)
    return InvalidInput(f"There is no {what} {index}.", hint=f"Choose from 0 to {last}.")


def _by_words(capture: Capture, index: int, source: Tokens, written: Tokens) -> np.ndarray:
    rows = capture.array[index][: len(written)]
    return merge(rows, written, source)


def _links(known: Known, source: Tokens, written: Tokens) -> dict[int, set[int]]:
    """Return the source words of each gold target word, as indices among the displayed words."""
    source_index, target_index = _counted(source), _counted(written)
    links: dict[int, set[int]] = {}
    for source_word, target_word in known:
        for number, index, side in ((source_word, source_index, "source"), (target_word, target_index, "target")):
            if number not in index:
                words = (source if index is source_index else written).words
                raise InvalidInput(
                    f"The {side} has no word {number}.", hint=f"It has {len(index)}: {' '.join(words[:20])}"
                )
        links.setdefault(target_index[target_word], set()).add(source_index[source_word])
    return links


def _counted(tokens: Tokens) -> dict[int, int]:
    """Map word numbers to indices among the displayed words; without word numbers, all words count."""
    index = {number: position for position, number in enumerate(tokens.numbers) if number is not None}
    return index or {position: position for position in range(len(tokens.words))}


def _score(place: Place, head: int, table: np.ndarray, links: dict[int, set[int]]) -> AlignmentScore:
    best = table.argmax(axis=1)
    accuracy = float(np.mean([best[target] in sources for target, sources in links.items()])) if links else None
    monotonicity, sharpness = _monotony(best), float(table.max(axis=1).mean())
    score = monotonicity * sharpness if accuracy is None else accuracy
    return AlignmentScore(place, head, accuracy, monotonicity, sharpness, score)


def _monotony(best: np.ndarray) -> float:
    """Correlation of source position with target position; 0 if the source position never moves."""
    if len(best) < 2 or best.min() == best.max():
        return 0.0
    return max(0.0, float(np.corrcoef(np.arange(len(best)), best)[0, 1]))
