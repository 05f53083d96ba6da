"""Word alignment from cross-attention, and ranking of heads by how well they align."""

from collections.abc import Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.inspection.results import Alignment, AlignmentScore, Array, AttentionRecord, Tokens
from peasy.inspection.words import merge_words
from peasy.nn.module_path import ModulePath

_GoldPairs = Sequence[tuple[int, int]]
"""(source word, target word), both counted from 0, without spaces and special tokens."""


def parse_gold_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """Parse word pairs in Pharaoh format: 0-0 1-2, source word first, counted from 0.

    >>> parse_gold_pairs("0-0 1-2")
    ((0, 0), (1, 2))
    """
    pairs = [pair.partition("-") for pair in text.split()]
    for source, dash, target in pairs:
        if not (source.isdecimal() and target.isdecimal()):
            hint = 'Write source word, dash, target word: "0-0 1-2".'
            raise InvalidInput(f'"{source}{dash}{target}" is not a pair of word numbers.', hint=hint)
    if not pairs:
        raise InvalidInput("No word pair is given.", hint='For example "0-0 1-2": source word, dash, target word.')
    return tuple((int(source), int(target)) for source, _, target in pairs)


def align(
    record: AttentionRecord,
    target: Tokens,
    gold: _GoldPairs = (),
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
    tables = {
        (capture.path, head): merge_words(weights[: len(target)], target, record.tokens)
        for capture in captures
        for head, weights in zip(capture.heads, capture.array, strict=True)
    }
    # The source words of each gold target word, as indices among the displayed words.
    source = record.tokens
    sides = (("source", source, _word_index(source)), ("target", target, _word_index(target)))
    links: dict[int, set[int]] = {}
    for pair in gold:
        for number, (side, tokens, position_of) in zip(pair, sides, strict=True):
            if number not in position_of:
                hint = f"It has {len(position_of)}: {' '.join(tokens.words[:20])}"
                raise InvalidInput(f"The {side} has no word {number}.", hint=hint)
        source_word, target_word = (known[number] for number, (_, _, known) in zip(pair, sides, strict=True))
        links.setdefault(target_word, set()).add(source_word)

    def rank(score: AlignmentScore) -> tuple[bool, float, float]:
        """Best first; ties in accuracy go to the more monotonic and sharper head."""
        return (score.path.layer, score.head) != preferred_head, -score.score, -score.monotonicity * score.sharpness

    scores = sorted((_score(*key, table, links) for key, table in tables.items()), key=rank)
    chosen = next((s for s in scores if (path in (None, s.path)) and head in (None, s.head)), None)
    if chosen is None:
        what, index, last = "head", head, max(number for _, number in tables)
        if path is not None and path not in {known_path for known_path, _ in tables}:
            what, index, last = "layer", path.layer, max(known_path.layer for known_path, _ in tables)
        raise InvalidInput(f"There is no {what} {index}.", hint=f"Choose from 0 to {last}.")
    weights = tables[chosen.path, chosen.head]
    pairs = tuple((source_word, word) for word, sources in sorted(links.items()) for source_word in sorted(sources))
    chosen_head = (weights, chosen.path, chosen.head)
    return Alignment(record.model, record.tokens, target, *chosen_head, tuple(scores), pairs)


def _word_index(tokens: Tokens) -> dict[int, int]:
    """Map word numbers to indices among the displayed words; without word numbers, all words count."""
    index = {number: position for position, number in enumerate(tokens.word_numbers) if number is not None}
    return index or {position: position for position in range(len(tokens.words))}


def _score(path: ModulePath, head: int, table: Array, links: dict[int, set[int]]) -> AlignmentScore:
    best = table.argmax(axis=1)
    accuracy = float(np.mean([best[target] in sources for target, sources in links.items()])) if links else None
    monotonicity = 0.0  # correlation of source position with target position; 0 if the source position never moves
    if len(best) > 1 and best.min() != best.max():
        monotonicity = max(0.0, float(np.corrcoef(np.arange(len(best)), best)[0, 1]))
    sharpness = float(table.max(axis=1).mean())
    score = monotonicity * sharpness if accuracy is None else accuracy
    return AlignmentScore(path, head, accuracy, monotonicity, sharpness, score)
