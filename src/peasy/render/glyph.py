"""Making every character of a text visible and harmless, whatever it will be drawn on.

Tokens come from anywhere. A control character can move a cursor, an override can turn a line around, a lone
surrogate cannot be written to a file at all: each is shown as a sign of itself instead.
"""

import unicodedata

_SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡", "\u2028": "⏎", "\u2029": "⏎"}
_KEPT = {"\u200c", "\u200d"}
"""Joiners: Persian words and family emoji are made with them."""

SPACE = "·"
LONGEST = 60
"""A label longer than this is cut, with a sign that it was."""


def tame(text: str) -> str:
    """The text with every invisible or dangerous character shown as a sign.

    >>> tame("a" + chr(27) + "[31m" + chr(0x202E) + "b")
    'a␛[31m⟨U+202E⟩b'
    """
    if text.isprintable():
        return text
    return "".join(_sign(each) for each in text)


def label(text: str) -> str:
    """A token as a label: spaces at its ends become dots, line ends arrows, and what is too long is cut.

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
    """A sentence: line ends and tabs are plain spaces, all else as in `tame`."""
    return tame(text.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))


def _sign(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if character in _KEPT or 0xE0020 <= code <= 0xE007F:  # the latter spell the flags of England, Scotland, Wales
        return character
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} or code & 0xFFFE == 0xFFFE:
        return f"⟨U+{code:04X}⟩"
    return character
