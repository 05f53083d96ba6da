"""Example from any sentence: each word gets a deterministic vector hashed from its letters."""

import hashlib
import re
import unicodedata

from peasy.errors import InvalidInput
from peasy.worked.example import Example

_VECTOR_SIZE = 4
"""Dimensions per word: few enough to follow by hand, and divisible by two or four heads."""

VECTOR_NOTE = (
    "The vectors are hashed from the letters of the words, so the same word always gets the same vector. "
    "They carry no meaning: words that are similar here are similar by chance."
)

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Characters of Chinese and Japanese: in a text without spaces each is a word of its own."""

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]+")
_WORD_OR_CHARACTER = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['’-][^\W{_UNSPACED}]+)*|[^\w\s]+")


def sentence_example(text: str) -> Example:
    """Return the sentence as an example without trainable weights.

    >>> sentence_example("easy peasy").x == sentence_example("Easy, peasy").x[::2]
    True
    """
    tokens = split_words(text)
    if len(tokens) < 2:
        raise InvalidInput("A sentence needs two words or more.", hint='For example: peasy explain "I love AI"')
    x = tuple(word_vector(token) for token in tokens)
    return Example(title=" ".join(text.split()), tokens=tokens, x=x, note=VECTOR_NOTE)


def split_words(text: str) -> tuple[str, ...]:
    """Split a text into words and punctuation marks.

    >>> split_words("My phone broke, great")
    ('My', 'phone', 'broke', ',', 'great')
    >>> split_words("我爱AI"), split_words("我爱 AI")
    (('我', '爱', 'AI'), ('我爱', 'AI'))
    """
    pattern = _WORD if len(text.split()) > 1 else _WORD_OR_CHARACTER
    return tuple(pattern.findall(text))


def word_vector(word: str) -> tuple[float, ...]:
    """Return the vector of a word, in tenths from -1 to 1; case and Unicode normalisation do not matter.

    >>> word_vector("pizza") == word_vector("Pizza")
    True
    """
    letters = unicodedata.normalize("NFC", unicodedata.normalize("NFC", word).casefold())
    digest = hashlib.sha256(letters.encode("utf-8", "surrogatepass")).digest()
    return tuple((int.from_bytes(digest[4 * i : 4 * i + 4], "big") % 21 - 10) / 10 for i in range(_VECTOR_SIZE))
