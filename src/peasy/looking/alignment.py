"""Which source words an answer was written from, and which head aligns best."""

from collections.abc import Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.looking.label import Tokens
from peasy.looking.record import Alignment, AlignmentScore, Capture, Look
from peasy.looking.words import merge
from peasy.nn.place import Place

Known = Sequence[tuple[int, int]]
"""(source word, target word) as `split_words` counts them."""


def align(
    look: Look, written: Tokens, known: Known = (), *, place: Place | None = None, head: int | None = None
) -> Alignment:
    """The alignment of the best head, or of the one that is named.

    `written` are the tokens that came out: the weights of a token are those of the step that wrote it, which read the
    token before it.
    """
    captures = [c for c in look.captures if c.step == "weights" and c.place.part == "cross_attention"]
    if not captures:
        raise InvalidInput(f"{look.model} has no attention to a source.", hint="Only translators align.")
    tables = {(c.place, h): _by_words(c, i, look.tokens, written) for c in captures for i, h in enumerate(c.heads)}
    links = _links(known, look.tokens, written)
    scores = sorted((_score(*key, table, links) for key, table in tables.items()), key=lambda one: -one.score)
    chosen = next((s for s in scores if (place in (None, s.place)) and head in (None, s.head)), None)
    if chosen is None:
        raise InvalidInput(f"There is no head {head} of that attention to align by.")
    weights = tables[chosen.place, chosen.head]
    pairs = tuple((source, target) for target, sources in sorted(links.items()) for source in sorted(sources))
    return Alignment(
        look.model, look.tokens, written, weights, chosen.place, chosen.head, tuple(scores), pairs, look.caveat
    )


def _by_words(capture: Capture, index: int, source: Tokens, written: Tokens) -> np.ndarray:
    rows = capture.array[index][: len(written)]
    return merge(rows, written, source)


def _links(known: Known, source: Tokens, written: Tokens) -> dict[int, set[int]]:
    """For each known target word its source words, by their numbers among the shown words."""
    left = {number: at for at, number in enumerate(source.numbers) if number is not None}
    right = {number: at for at, number in enumerate(written.numbers) if number is not None}
    found: dict[int, set[int]] = {}
    for ours, theirs in known:
        if ours in left and theirs in right:
            found.setdefault(right[theirs], set()).add(left[ours])
    return found


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
