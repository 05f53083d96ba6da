"""Sanitising of untrusted text: control characters become visible symbols in every output format.

A control character can move the cursor, a bidi override can reverse a line, a lone surrogate cannot be encoded:
each is replaced by a visible symbol.
"""

import re
import unicodedata

_SYMBOLS = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡", "\u2028": "⏎", "\u2029": "⏎"}
_JOINERS = {"\u200c", "\u200d"}
"""Joiners, needed by Persian words and family emoji."""

_FLAG = re.compile("(\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f)")
"""Flags of England, Scotland and Wales, spelled in invisible letters; these hide a message anywhere else."""

_SPACE_SYMBOL = "·"
MAX_LABEL_LENGTH = 60
"""Maximum length of a label; a longer one is cut with an ellipsis."""


def escape_control(text: str) -> str:
    """Replace every invisible or dangerous character by a visible symbol.

    >>> escape_control("a" + chr(27) + "[31m" + chr(0x202E) + "b")
    'a␛[31m⟨U+202E⟩b'
    """
    if text.isprintable():
        return text
    parts = _FLAG.split(text)
    return "".join(part if index % 2 else "".join(map(_visible_symbol, part)) for index, part in enumerate(parts))


def token_label(text: str) -> str:
    """Return a token as a label: outer spaces become dots, line ends arrows; long tokens are cut.

    >>> token_label(" the"), token_label(chr(10)), token_label("<eos>")
    ('·the', '⏎', '<eos>')
    """
    inner = text.strip(" ")
    if not inner:
        return _SPACE_SYMBOL * min(len(text), MAX_LABEL_LENGTH)
    before, after = (len(text) - len(rest) for rest in (text.lstrip(" "), text.rstrip(" ")))
    left, right = (_SPACE_SYMBOL * min(count, MAX_LABEL_LENGTH) for count in (before, after))
    shown = left + escape_control(inner[: MAX_LABEL_LENGTH * 2]) + right
    return shown if len(shown) <= MAX_LABEL_LENGTH else shown[: MAX_LABEL_LENGTH - 1] + "…"


def one_line(text: str) -> str:
    """Return a text on one line: line ends and tabs become spaces, all else as in `escape_control`."""
    return escape_control(text.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))


def _visible_symbol(character: str) -> str:
    if character in _SYMBOLS:
        return _SYMBOLS[character]
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if character in _JOINERS:
        return character
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} or code & 0xFFFE == 0xFFFE:
        return f"⟨U+{code:04X}⟩"
    return character
