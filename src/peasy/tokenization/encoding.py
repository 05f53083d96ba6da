"""Encoding of a text: token ids, printable pieces, character offsets and word ids."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

WORD_PATTERN = r"\w+(?:['’]\w+)*|[^\w\s]"
"""A word: letters and digits, possibly with an apostrophe inside; or one other character."""

_WORD_REGEX = re.compile(WORD_PATTERN)


@dataclass(frozen=True)
class Encoding:
    """A tokenized text. `offsets` count characters; `word_ids` gives the word id of each token, or None.

    Tokens of only spaces and special tokens (`<eos>`) belong to no word.
    """

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    word_ids: tuple[int | None, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def word_groups(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return each word of the text with the positions of its tokens; words without a token are left out."""
        positions: dict[int, list[int]] = {}
        for position, word in enumerate(self.word_ids):
            if word is not None:
                positions.setdefault(word, []).append(position)
        spans = split_words(self.text)
        return [(self.text[slice(*spans[word])], tuple(tokens)) for word, tokens in sorted(positions.items())]


def split_words(text: str) -> list[tuple[int, int]]:
    """Return the spans of the words of a text: runs of letters and digits, and single other characters.

    >>> [("It's hot!")[a:b] for a, b in split_words("It's hot!")]
    ["It's", 'hot', '!']
    """
    return [match.span() for match in _WORD_REGEX.finditer(text)]


def token_word_ids(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[int | None, ...]:
    """Return the id of the word in which each token begins, ignoring leading spaces.

    >>> token_word_ids("low lower", [(0, 3), (3, 7), (7, 9)])
    (0, 1, 1)
    """
    word_of_char: list[int | None] = [None] * len(text)
    for word, (start, end) in enumerate(split_words(text)):
        word_of_char[start:end] = [word] * (end - start)
    return tuple(next((word for word in word_of_char[start:end] if word is not None), None) for start, end in offsets)
