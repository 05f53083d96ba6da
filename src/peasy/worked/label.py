"""Token labels: whitespace is made visible, control characters are replaced by symbols."""

from peasy.errors import InvalidInput

LONGEST = 40
"""Maximum length of a label in characters; the token itself is not cut."""

_NAMED = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡", "\xa0": "·"}
_DIRECTIONS = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)}


def visible(token: str) -> str:
    """Return the token as a printable label.

    >>> visible(" the"), visible("a\\x1b[31m"), visible("")
    ('·the', 'a␛[31m', '(empty)')
    """
    text = "".join(_visible_character(character) for character in token[: LONGEST + 1])
    stripped = text.lstrip(" ")
    text = "·" * (len(text) - len(stripped)) + stripped
    return (text[: LONGEST - 1] + "…" if len(token) > LONGEST else text) or "(empty)"


def check_token(where: str, token: str) -> None:
    """Raise if a token contains a lone surrogate, which cannot be encoded."""
    try:
        token.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"{where} contains a lone surrogate, which cannot be encoded as UTF-8.") from None


def _visible_character(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))
    if 0x80 <= ord(character) < 0xA0 or character in _DIRECTIONS or character in "\u2028\u2029":
        return f"(U+{ord(character):04X})"
    return character
