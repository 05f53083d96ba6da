"""Sub-words and words: what the model read, and what a person reads."""

from collections.abc import Iterable, Sequence

import numpy as np

from peasy.errors import InvalidInput, did_you_mean
from peasy.looking.label import Tokens
from peasy.text import Encoding, Tokenizer
from peasy.text.encoding import split_words


def tokens_of(
    encoding: Encoding, tokenizer: Tokenizer, before: Iterable[int] = (), after: Iterable[int] = ()
) -> Tokens:
    """The tokens of a text, with ids that were put before and after it; each of those is a word of its own."""
    first, last = list(before), list(after)
    ids = (*first, *encoding.ids, *last)
    pieces = (*map(tokenizer.piece, first), *encoding.pieces, *map(tokenizer.piece, last))
    numbers = (*[None] * len(first), *encoding.words, *[None] * len(last))
    spans = split_words(encoding.text)
    groups: list[list[int]] = []
    for place, number in enumerate(numbers):
        if number is None or place == 0 or numbers[place - 1] != number:
            groups.append([])
        groups[-1].append(place)
    named = [numbers[group[0]] for group in groups]
    words = [
        pieces[group[0]] if number is None else encoding.text[slice(*spans[number])]
        for group, number in zip(groups, named, strict=True)
    ]
    return Tokens(encoding.text, ids, pieces, tuple(words), tuple(map(tuple, groups)), tuple(named))


def tokens_of_ids(ids: Sequence[int], pieces: Sequence[str] | None = None, text: str = "") -> Tokens:
    """Tokens without a text: every one is a word of its own."""
    shown = tuple(pieces) if pieces is not None else tuple(f"#{id}" for id in ids)
    places = tuple((place,) for place in range(len(ids)))
    return Tokens(text, tuple(ids), shown, shown, places, (None,) * len(ids))


def merge(array: np.ndarray, queries: Tokens, keys: Tokens, rows: Sequence[int] | None = None) -> np.ndarray:
    """Weights `[..., row, key]` by words: summed over the tokens of a key, averaged over those of a query.

    `rows` are the places of the rows that are there; a word of which none is there is left out.
    """
    summed = np.stack([array[..., list(group)].astype(np.float32).sum(-1) for group in keys.groups], axis=-1)
    at = {place: row for row, place in enumerate(range(len(queries)) if rows is None else rows)}
    there = [[at[place] for place in group if place in at] for group in queries.groups]
    return np.stack([summed[..., own, :].mean(-2) for own in there if own], axis=-2)


def words_there(queries: Tokens, rows: Sequence[int] | None = None) -> tuple[str, ...]:
    """The words of which at least one token is among the rows."""
    there = set(range(len(queries)) if rows is None else rows)
    pairs = zip(queries.words, queries.groups, strict=True)
    return tuple(word for word, group in pairs if there & set(group))


def find_word(tokens: Tokens, word: str | int) -> tuple[int, ...]:
    """The places of a word's tokens: the last time it stands there, a word of the text, a piece, or a place itself."""
    if isinstance(word, int):
        if not -len(tokens) <= word < len(tokens):
            raise InvalidInput(f"There is no token {word}.", hint=f"Here they go from 0 to {len(tokens) - 1}.")
        return (word % len(tokens),)
    for same in (lambda mine: mine == word, lambda mine: mine.lower() == word.lower()):
        found = [group for mine, group in zip(tokens.words, tokens.groups, strict=True) if same(mine)]
        found = found or [
            (place,) for place, piece in enumerate(tokens.pieces) if same(piece) or same(piece.strip("·"))
        ]
        if found:
            return found[-1]
    hint = did_you_mean(word, tokens.words) or f"The words are: {' '.join(tokens.words[:40])}"
    raise InvalidInput(f'The word "{word}" is not in the text.', hint=hint)
