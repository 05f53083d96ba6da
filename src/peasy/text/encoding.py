"""What a text became: ids, the pieces they stand for, where in the text each came from, and the word it belongs to."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

WORD = r"\w+(?:['’]\w+)*|[^\w\s]"
"""A word: letters and digits, also around an apostrophe; or one other sign."""

_WORD = re.compile(WORD)


@dataclass(frozen=True)
class Encoding:
    """One text as tokens. `offsets` count characters; `words` gives each token the number of its word, or None.

    A token of nothing but spaces, and one that is not text at all (`<eos>`), belongs to no word.
    """

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    words: tuple[int | None, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def groups(self) -> list[tuple[str, tuple[int, ...]]]:
        """Each word of the text with the places of its tokens, in order; words without a token are left out."""
        places: dict[int, list[int]] = {}
        for place, word in enumerate(self.words):
            if word is not None:
                places.setdefault(word, []).append(place)
        spans = split_words(self.text)
        return [(self.text[slice(*spans[word])], tuple(found)) for word, found in sorted(places.items())]


def split_words(text: str) -> list[tuple[int, int]]:
    """Where the words of a text begin and end: runs of letters and digits, and each sign on its own.

    >>> [("It's hot!")[a:b] for a, b in split_words("It's hot!")]
    ["It's", 'hot', '!']
    """
    return [found.span() for found in _WORD.finditer(text)]


def words_of(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[int | None, ...]:
    """The number of the word in which each token begins, spaces in front of it not counted.

    >>> words_of("low lower", [(0, 3), (3, 7), (7, 9)])
    (0, 1, 1)
    """
    at: list[int | None] = [None] * len(text)
    for number, (start, end) in enumerate(split_words(text)):
        at[start:end] = [number] * (end - start)
    return tuple(next((word for word in at[start:end] if word is not None), None) for start, end in offsets)
