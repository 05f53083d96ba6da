"""Labels: tokens with visible whitespace and control characters; numbers of hand calculations.

Exact numbers have no trailing zeros, rounded ones all decimals.
"""

import math

from peasy.errors import InvalidInput

MAX_LABEL_LENGTH = 40
"""Maximum length of a label in characters; the token itself is not cut."""

_BIDI_CONTROLS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
_SYMBOLS = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    **{code: f"(U+{code:04X})" for code in (*range(0x80, 0xA0), *_BIDI_CONTROLS, 0x2028, 0x2029)},
    **str.maketrans({"\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡", "\xa0": "·"}),
}
"""Visible signs for control characters."""


def token_label(token: str) -> str:
    """Return the token as a printable label.

    >>> token_label(" the"), token_label("a\\x1b[31m"), token_label("")
    ('·the', 'a␛[31m', '(empty)')
    """
    text = token[: MAX_LABEL_LENGTH + 1].translate(_SYMBOLS)
    stripped = text.lstrip(" ")
    text = "·" * (len(text) - len(stripped)) + stripped
    return (text[: MAX_LABEL_LENGTH - 1] + "…" if len(token) > MAX_LABEL_LENGTH else text) or "(empty)"


def check_encodable(where: str, token: str) -> None:
    """Raise if a token contains a lone surrogate, which cannot be encoded."""
    try:
        token.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"{where} contains a lone surrogate, which cannot be encoded as UTF-8.") from None


def format_number(number: float, decimals: int = 4) -> str:
    """Format a number at `decimals`; trailing zeros are dropped only if the number is exact.

    >>> format_number(1.0), format_number(0.5), format_number(2 / 3), format_number(1.99999), format_number(-math.inf)
    ('1', '0.5', '0.6667', '2.0000', '-∞')
    """
    if not math.isfinite(number):
        return {math.inf: "∞", -math.inf: "-∞"}.get(number, "not a number")
    if abs(number) >= 1e15:
        return f"{number:.{decimals}e}"
    text = f"{number:.{decimals}f}"
    text = text.removeprefix("-") if float(text) == 0 else text
    exact = abs(float(text) - number) <= 1e-13 * max(1.0, abs(number))
    return text.rstrip("0").rstrip(".") if exact and "." in text else text


def format_operand(number: float, decimals: int = 4) -> str:
    """Format a number inside a product or sum: negative numbers in brackets."""
    text = format_number(number, decimals)
    return f"({text})" if text.startswith("-") else text


def format_percent(fraction: float) -> str:
    """Format a fraction of 1 in percent.

    >>> format_percent(0.19778), format_percent(0.4), format_percent(1)
    ('19.8 %', '40 %', '100 %')
    """
    return f"{format_number(round(100 * fraction, 1), 1)} %"
