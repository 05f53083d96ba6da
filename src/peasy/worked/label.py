"""Tokens as labels: what cannot be seen is made visible, what would steer a screen is made harmless."""

from peasy.errors import InvalidInput

LONGEST = 40
"""More characters than this are cut from a label; the token itself stays whole."""

_NAMED = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡", "\xa0": "·"}
_DIRECTIONS = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)}


def visible(token: str) -> str:
    """The token as a label on paper or screen.

    >>> visible(" the"), visible("a\\x1b[31m"), visible("")
    ('·the', 'a␛[31m', '(empty)')
    """
    text = "".join(_visible_character(each) for each in token[: LONGEST + 1])
    bare = text.lstrip(" ")
    text = "·" * (len(text) - len(bare)) + bare
    return (text[: LONGEST - 1] + "…" if len(token) > LONGEST else text) or "(empty)"


def check_token(where: str, token: str) -> None:
    """Refuse half characters (lone surrogates): no file or screen could show them."""
    try:
        token.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"{where} holds half a character, which cannot be written.") from None


def _visible_character(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))
    if 0x80 <= ord(character) < 0xA0 or character in _DIRECTIONS or character in "\u2028\u2029":
        return f"(U+{ord(character):04X})"
    return character
