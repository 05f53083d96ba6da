"""Printable tokens: spaces, line breaks and partial characters made visible."""

_WHITESPACE_SYMBOLS = str.maketrans({" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "▁": "·"})


def _byte_alphabet() -> dict[str, int]:
    """Return the byte-level alphabet (GPT-2): printable bytes as themselves, the rest from code point 256 on."""
    printable_bytes = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable_bytes]
    return {chr(byte): byte for byte in printable_bytes} | {chr(256 + i): byte for i, byte in enumerate(rest)}


CHAR_TO_BYTE = _byte_alphabet()
"""Character to byte."""


def token_to_bytes(token: str) -> bytes:
    """Return the bytes of a byte-level token.

    >>> token_to_bytes("Ġthe")
    b' the'
    """
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
