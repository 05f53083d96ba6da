"""Sub-words and words: what the model read, and what a person reads."""

from collections.abc import Iterable, Sequence

import numpy as np

from peasy.errors import InvalidInput, did_you_mean
from peasy.looking.label import Tokens
from peasy.text import Encoding, Tokenizer


def tokens_of(
    encoding: Encoding, tokenizer: Tokenizer, before: Iterable[int] = (), after: Iterable[int] = ()
) -> Tokens:
    """The tokens of a text, with ids that were put before and after it; each of those is a word of its own."""
    first, last = list(before), list(after)
    words, groups, current = list[str](), list[tuple[int, ...]](), None
    spans = dict(enumerate(text for text, _ in encoding.groups()))
    named = {place: number for number, (_, places) in enumerate(encoding.groups()) for place in places}
    for place, piece in enumerate(encoding.pieces):
        number = named.get(place)
        if number is not None and number == current:
            groups[-1] = (*groups[-1], len(first) + place)
        else:
            words.append(piece if number is None else spans[number])
            groups.append((len(first) + place,))
        current = number
    start = [tokenizer.piece(id) for id in first]
    end = [tokenizer.piece(id) for id in last]
    count = len(first) + len(encoding)
    return Tokens(
        encoding.text,
        (*first, *encoding.ids, *last),
        (*start, *encoding.pieces, *end),
        (*start, *words, *end),
        (*((place,) for place in range(len(first))), *groups, *((count + i,) for i in range(len(last)))),
    )


def tokens_of_ids(ids: Sequence[int], pieces: Sequence[str] | None = None, text: str = "") -> Tokens:
    """Tokens without a text: every one is a word of its own."""
    shown = tuple(pieces) if pieces is not None else tuple(f"#{id}" for id in ids)
    return Tokens(text, tuple(ids), shown, shown, tuple((place,) for place in range(len(ids))))


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
