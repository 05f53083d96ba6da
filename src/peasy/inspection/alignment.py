"""Word alignment from cross-attention, and ranking of heads by how well they align."""

from collections.abc import Collection, Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.inspection.label import Tokens
from peasy.inspection.results import Alignment, AlignmentScore, AttentionRecord, Capture
from peasy.inspection.words import merge_words
from peasy.nn.module_path import ModulePath

GoldPairs = Sequence[tuple[int, int]]
"""(source word, target word), both counted from 0, without spaces and special tokens."""


def parse_gold_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """Parse word pairs in Pharaoh format: 0-0 1-2, source word first, counted from 0.

    >>> parse_gold_pairs("0-0 1-2")
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
    record: AttentionRecord,
    target: Tokens,
    gold: GoldPairs = (),
    *,
    path: ModulePath | None = None,
    head: int | None = None,
    preferred_head: tuple[int, int] | None = None,
) -> Alignment:
    """Return the alignment of the best head, or of the given one.

    `target`: the generated tokens; the weights of a token are those of the step that produced it, whose input was the
    token before. `preferred_head`: (layer, head) that aligned best on many texts, since one text may mislead.
    """
    captures = [c for c in record.captures if c.step == "weights" and c.path.part == "cross_attention"]
    if not captures:
        raise InvalidInput(f"{record.model} has no cross-attention.", hint="Alignment needs an encoder-decoder model.")
    tables = {(c.path, h): _word_weights(c, i, record.tokens, target) for c in captures for i, h in enumerate(c.heads)}
    links = _gold_links(gold, record.tokens, target)
    scores = sorted(
        (_score(*key, table, links) for key, table in tables.items()), key=lambda s: _rank(s, preferred_head)
    )
    chosen = next((s for s in scores if (path in (None, s.path)) and head in (None, s.head)), None)
    if chosen is None:
        raise _no_such_head(tables.keys(), path, head)
    weights = tables[chosen.path, chosen.head]
    pairs = tuple((source_word, word) for word, sources in sorted(links.items()) for source_word in sorted(sources))
    return Alignment(
        record.model, record.tokens, target, weights, chosen.path, chosen.head, tuple(scores), pairs, record.caveat
    )


def _rank(score: AlignmentScore, preferred_head: tuple[int, int] | None) -> tuple[bool, float, float]:
    """Sort key, best first; ties in accuracy go to the more monotonic and sharper head."""
    return (score.path.layer, score.head) != preferred_head, -score.score, -score.monotonicity * score.sharpness


def _no_such_head(keys: Collection[tuple[ModulePath, int]], path: ModulePath | None, head: int | None) -> InvalidInput:
    what, index, last = "head", head, max(number for _, number in keys)
    if path is not None and path not in {known_path for known_path, _ in keys}:
        what, index, last = "layer", path.layer, max(known_path.layer for known_path, _ in keys)
    return InvalidInput(f"There is no {what} {index}.", hint=f"Choose from 0 to {last}.")


def _word_weights(capture: Capture, index: int, source: Tokens, target: Tokens) -> np.ndarray:
    rows = capture.array[index][: len(target)]
    return merge_words(rows, target, source)


def _gold_links(gold: GoldPairs, source: Tokens, target: Tokens) -> dict[int, set[int]]:
    """Return the source words of each gold target word, as indices among the displayed words."""
    source_index, target_index = _word_index(source), _word_index(target)
    links: dict[int, set[int]] = {}
    for source_word, target_word in gold:
        for number, index, side in ((source_word, source_index, "source"), (target_word, target_index, "target")):
            if number not in index:
                words = (source if index is source_index else target).words
                raise InvalidInput(
                    f"The {side} has no word {number}.", hint=f"It has {len(index)}: {' '.join(words[:20])}"
                )
        links.setdefault(target_index[target_word], set()).add(source_index[source_word])
    return links


def _word_index(tokens: Tokens) -> dict[int, int]:
    """Map word numbers to indices among the displayed words; without word numbers, all words count."""
    index = {number: position for position, number in enumerate(tokens.word_numbers) if number is not None}
    return index or {position: position for position in range(len(tokens.words))}


def _score(path: ModulePath, head: int, table: np.ndarray, links: dict[int, set[int]]) -> AlignmentScore:
    best = table.argmax(axis=1)
    accuracy = float(np.mean([best[target] in sources for target, sources in links.items()])) if links else None
    monotonicity, sharpness = _monotonicity(best), float(table.max(axis=1).mean())
    score = monotonicity * sharpness if accuracy is None else accuracy
    return AlignmentScore(path, head, accuracy, monotonicity, sharpness, score)


def _monotonicity(best: np.ndarray) -> float:
    """Correlation of source position with target position; 0 if the source position never moves."""
    if len(best) < 2 or best.min() == best.max():
        return 0.0
    return max(0.0, float(np.corrcoef(np.arange(len(best)), best)[0, 1]))
