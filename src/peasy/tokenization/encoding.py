"""Encoding of a text: token ids, printable pieces, character offsets and word ids; bytes of byte-level tokens."""

import io
import re
from collections.abc import Sequence

from peasy.parameters import Record

WORD_PATTERN = r"\w+(?:['’]\w+)*|[^\w\s]"
"""A word: letters and digits, possibly with an apostrophe inside; or one other character."""

_WORD_REGEX = re.compile(WORD_PATTERN)


class Encoding(Record):
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


def split_lines(text: str) -> list[str]:
    """Return the lines of a file, ended by line breaks alone: U+2028 ends none, it is a token of Chinese BERT.

    >>> split_lines("a\\u2028b\\r\\nc\\n")
    ['a\\u2028b', 'c']
    """
    return io.StringIO(text, newline=None).read().removesuffix("\n").split("\n") if text else []


def split_words(text: str) -> list[tuple[int, int]]:
    """Return the spans of the words of a text: runs of letters and digits, and single other characters."""
    return [match.span() for match in _WORD_REGEX.finditer(text)]


def token_word_ids(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[int | None, ...]:
    """Return the id of the word in which each token begins, ignoring leading spaces."""
    word_of_char: list[int | None] = [None] * len(text)
    for word, (start, end) in enumerate(split_words(text)):
        word_of_char[start:end] = [word] * (end - start)
    return tuple(next((word for word in word_of_char[start:end] if word is not None), None) for start, end in offsets)


_WHITESPACE_SYMBOLS = str.maketrans({" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "▁": "·"})


_PRINTABLE_BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
CHAR_TO_BYTE = {chr(byte): byte for byte in _PRINTABLE_BYTES}
CHAR_TO_BYTE |= {chr(256 + i): byte for i, byte in enumerate(sorted({*range(256)} - {*_PRINTABLE_BYTES}))}
"""Byte-level alphabet (GPT-2): printable bytes as themselves, the rest from code point 256 on."""


def token_to_bytes(token: str) -> bytes:
    """Return the bytes of a byte-level token."""
    if all(char in CHAR_TO_BYTE for char in token):
        return bytes(CHAR_TO_BYTE[char] for char in token)
    return token.encode("utf-8", errors="replace")


def printable(token: str, *, byte_level: bool = False) -> str:
    """Return a token with visible spaces and line breaks; bytes of a partial character as hexadecimal numbers.

    >>> printable("Ġthe", byte_level=True), printable("▁the"), printable("ðŁ", byte_level=True)
    ('·the', '·the', '<F0 9F>')
    """
    text = token
    if byte_level:
        raw = token_to_bytes(token)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            return f"<{raw.hex(' ').upper()}>"
    translated = text.translate(_WHITESPACE_SYMBOLS)
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in translated)
