"""Token labels: whitespace is made visible, control characters are replaced by symbols."""

from peasy.errors import InvalidInput

MAX_LABEL_LENGTH = 40
"""Maximum length of a label in characters; the token itself is not cut."""

_SYMBOLS = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡", "\xa0": "·"}
_BIDI_CONTROLS = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)}


def token_label(token: str) -> str:
    """Return the token as a printable label.

    >>> token_label(" the"), token_label("a\\x1b[31m"), token_label("")
    ('·the', 'a␛[31m', '(empty)')
    """
    text = "".join(_printable_character(character) for character in token[: MAX_LABEL_LENGTH + 1])
    stripped = text.lstrip(" ")
    text = "·" * (len(text) - len(stripped)) + stripped
    return (text[: MAX_LABEL_LENGTH - 1] + "…" if len(token) > MAX_LABEL_LENGTH else text) or "(empty)"


def check_encodable(where: str, token: str) -> None:
    """Raise if a token contains a lone surrogate, which cannot be encoded."""
    try:
        token.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"{where} contains a lone surrogate, which cannot be encoded as UTF-8.") from None


def _printable_character(character: str) -> str:
    if character in _SYMBOLS:
        return _SYMBOLS[character]
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))
    if 0x80 <= ord(character) < 0xA0 or character in _BIDI_CONTROLS or character in "\u2028\u2029":
        return f"(U+{ord(character):04X})"
    return character
