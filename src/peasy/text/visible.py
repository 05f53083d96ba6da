"""Pieces as a person can read them: spaces, line ends and half characters made visible."""

_SIGNS = str.maketrans({" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "▁": "·"})


def _byte_alphabet() -> dict[str, int]:
    """The sign by which byte-level tokenizers write each byte: printable bytes as themselves, the rest from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(rest)}


BYTES = _byte_alphabet()
"""Sign to byte."""


def to_bytes(token: str) -> bytes:
    """The bytes a byte-level token stands for.

    >>> to_bytes("Ġthe")
    b' the'
    """
    if all(sign in BYTES for sign in token):
        return bytes(BYTES[sign] for sign in token)
    return token.encode("utf-8", errors="replace")


def visible(token: str, *, byte_level: bool = False) -> str:
    """A token with its spaces and line ends visible; bytes that are no whole character are shown as numbers.

    >>> visible("Ġthe", byte_level=True), visible("▁the"), visible("ðŁ", byte_level=True)
    ('·the', '·the', '<F0 9F>')
    """
    text = token
    if byte_level:
        raw = to_bytes(token)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            return f"<{raw.hex(' ').upper()}>"
    shown = text.translate(_SIGNS)
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in shown)
