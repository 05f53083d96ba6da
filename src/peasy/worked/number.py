"""Number formatting for hand calculations: exact numbers without trailing zeros, rounded ones with all decimals."""

import math


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
