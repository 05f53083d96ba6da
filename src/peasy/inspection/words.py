"""Tokens and words: labels tokens with their words, and merges attention over sub-words."""

from collections.abc import Iterable, Sequence

import numpy as np

from peasy.errors import InvalidInput, did_you_mean
from peasy.inspection.label import Tokens
from peasy.tokenization import Encoding, Tokenizer
from peasy.tokenization.encoding import split_words


def label_tokens(
    encoding: Encoding, tokenizer: Tokenizer, prefix_ids: Iterable[int] = (), suffix_ids: Iterable[int] = ()
) -> Tokens:
    """Label the tokens of a text; special ids before and after it are separate words."""
    first, last = list(prefix_ids), list(suffix_ids)
    ids = (*first, *encoding.ids, *last)
    pieces = (*map(tokenizer.piece, first), *encoding.pieces, *map(tokenizer.piece, last))
    numbers = (*[None] * len(first), *encoding.word_ids, *[None] * len(last))
    spans = split_words(encoding.text)
    groups: list[list[int]] = []
    for position, number in enumerate(numbers):
        if number is None or position == 0 or numbers[position - 1] != number:
            groups.append([])
        groups[-1].append(position)
    word_numbers = [numbers[group[0]] for group in groups]
    words = [
        pieces[group[0]] if number is None else encoding.text[slice(*spans[number])]
        for group, number in zip(groups, word_numbers, strict=True)
    ]
    return Tokens(encoding.text, ids, pieces, tuple(words), tuple(map(tuple, groups)), tuple(word_numbers))


def label_ids(ids: Sequence[int], pieces: Sequence[str] | None = None, text: str = "") -> Tokens:
    """Label ids without a text: every token is a separate word."""
    labels = tuple(pieces) if pieces is not None else tuple(f"#{id}" for id in ids)
    positions = tuple((position,) for position in range(len(ids)))
    return Tokens(text, tuple(ids), labels, labels, positions, (None,) * len(ids))


def merge_words(array: np.ndarray, queries: Tokens, keys: Tokens, rows: Sequence[int] | None = None) -> np.ndarray:
    """Merge weights `[..., row, key]` by words: sum over the tokens of a key, mean over those of a query.

    `rows`: positions of the given rows; words without any of them are left out.
    """
    summed = np.stack([array[..., list(group)].astype(np.float32).sum(-1) for group in keys.word_positions], axis=-1)
    row_of = {position: row for row, position in enumerate(range(len(queries)) if rows is None else rows)}
    word_rows = [[row_of[position] for position in group if position in row_of] for group in queries.word_positions]
    return np.stack([summed[..., indices, :].mean(-2) for indices in word_rows if indices], axis=-2)


def words_in_rows(queries: Tokens, rows: Sequence[int] | None = None) -> tuple[str, ...]:
    """Return the words with at least one token among the rows."""
    positions = set(range(len(queries)) if rows is None else rows)
    pairs = zip(queries.words, queries.word_positions, strict=True)
    return tuple(word for word, group in pairs if positions & set(group))


def find_word(tokens: Tokens, word: str | int) -> tuple[int, ...]:
    """Return the token positions of a word (its last occurrence), of a token piece, or of a position."""
    if isinstance(word, int):
        if not -len(tokens) <= word < len(tokens):
            raise InvalidInput(f"There is no position {word}.", hint=f"Choose from 0 to {len(tokens) - 1}.")
        return (word % len(tokens),)
    for matches in (lambda label: label == word, lambda label: label.lower() == word.lower()):
        positions = [group for label, group in zip(tokens.words, tokens.word_positions, strict=True) if matches(label)]
        positions = positions or [
            (position,) for position, piece in enumerate(tokens.pieces) if matches(piece) or matches(piece.strip("·"))
        ]
        if positions:
            return positions[-1]
    hint = did_you_mean(word, tokens.words) or f"The words are: {' '.join(tokens.words[:40])}"
    raise InvalidInput(f'The word "{word}" is not in the text.', hint=hint)
