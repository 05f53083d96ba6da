"""Sanitising of untrusted text: control characters become visible symbols in every output format.

A control character can move the cursor, a bidi override can reverse a line, a lone surrogate cannot be encoded:
each is replaced by a visible symbol.
"""

import unicodedata

_SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡", "\u2028": "⏎", "\u2029": "⏎"}
_KEPT = {"\u200c", "\u200d"}
"""Joiners, needed by Persian words and family emoji."""

SPACE = "·"
LONGEST = 60
"""Maximum length of a label; a longer one is cut with an ellipsis."""


def tame(text: str) -> str:
    """Replace every invisible or dangerous character by a visible symbol.

    >>> tame("a" + chr(27) + "[31m" + chr(0x202E) + "b")
    'a␛[31m⟨U+202E⟩b'
    """
    if text.isprintable():
        return text
    return "".join(_sign(character) for character in text)


def label(text: str) -> str:
    """Return a token as a label: outer spaces become dots, line ends arrows; long tokens are cut.

    >>> label(" the"), label(chr(10)), label("<eos>")
    ('·the', '⏎', '<eos>')
    """
    inner = text.strip(" ")
    if not inner:
        return SPACE * min(len(text), LONGEST)
    before, after = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    shown = SPACE * min(before, LONGEST) + tame(inner[: LONGEST * 2]) + SPACE * min(after, LONGEST)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def prose(text: str) -> str:
    """Return a text on one line: line ends and tabs become spaces, all else as in `escape_control`."""
    return tame(text.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))


def _sign(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if character in _KEPT or 0xE0020 <= code <= 0xE007F:  # the range spells the flags of England, Scotland, Wales
        return character
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} or code & 0xFFFE == 0xFFFE:
        return f"⟨U+{code:04X}⟩"
    return character
