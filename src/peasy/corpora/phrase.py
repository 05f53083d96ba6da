"""One meaning in two languages: CLDR's words for a date, an amount or a duration, and which words belong together."""

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from typing import Literal
from unicodedata import category

from babel import Locale
from babel.dates import DateTimeFormat, format_timedelta, tokenize_pattern
from babel.lists import format_list
from babel.numbers import format_currency
from babel.units import format_unit

from peasy.text.encoding import split_words

Parts = list[tuple[str, str]]
"""A text in parts, each with a tag that says what it stands for ("" = nothing of its own)."""

DateStyle = Literal["full", "long", "medium"]
MoneyStyle = Literal["standard", "name"]
ListStyle = Literal["standard", "or"]
TimeUnit = Literal["second", "minute", "hour", "day", "week", "month", "year"]

SECONDS: dict[TimeUnit, int] = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 604800,
    "month": 2592000,
    "year": 31536000,
}

_SAME_FIELD = {"L": "M", "c": "E", "e": "E"}


def say_date(day: date, style: DateStyle, locale: Locale) -> Parts:
    """A date; the tags are CLDR's field letters."""
    told = DateTimeFormat(day, locale)
    return [(text if literal else told[text], tag) for text, tag, literal in _date_pattern(style, locale)]


@cache
def _date_pattern(style: DateStyle, locale: Locale) -> tuple[tuple[str, str, bool], ...]:
    tokens = tokenize_pattern(locale.date_formats[style].pattern)
    return tuple(
        (value, "", True)
        if isinstance(value, str)
        else (value[0] * value[1], _SAME_FIELD.get(value[0], value[0]), False)
        for _, value in tokens
    )


def say_unit(number: Decimal, unit: str, locale: Locale) -> Parts:
    """A number with a unit of measurement, in full words."""
    return _around_number(format_unit(number, unit, "long", locale=locale))


def say_money(amount: Decimal, currency: str, style: MoneyStyle, locale: Locale) -> Parts:
    """An amount of money, with the sign of the currency ("standard") or its name ("name")."""
    before, *rest = _around_number(format_currency(amount, currency, locale=locale, format_type=style))
    if before[0][-1:].isalpha() and rest:
        before = (before[0] + " ", before[1])  # CLDR's rule for signs that are letters, which Babel leaves out
    return [before, *rest]


def say_relative(count: int, unit: TimeUnit, locale: Locale) -> str:
    """So many days, weeks, ... from now, or ago where the count is negative."""
    delta = timedelta(seconds=count * SECONDS[unit])
    return format_timedelta(delta, unit, threshold=10**9, add_direction=True, locale=locale)


def say_list(names: Sequence[str], style: ListStyle, locale: Locale) -> str:
    """Names with commas and "and" or "or" between them."""
    return format_list(names, style, locale=locale)


def _around_number(text: str) -> Parts:
    """What stands before, in and after the number."""
    digits = [place for place, letter in enumerate(text) if letter.isdigit()]
    if not digits:  # some languages have a word for one or two of a thing
        return [(text, "what")]
    start, end = digits[0], digits[-1] + 1
    return [(text[:start], "what"), (text[start:end], "number"), (text[end:], "what")]


def plain(parts: Parts) -> str:
    """The text, with plain spaces: CLDR's are of many widths and cannot be typed.

    >>> plain([("1\\u202f234", "number"), ("\\xa0€", "what")])
    '1 234 €'
    """
    return " ".join("".join(text for text, _ in parts).split())


def align(source: Parts, target: Parts) -> tuple[tuple[int, int], ...]:
    """Which words belong together, by number: words of the same tag, digits in their order.

    >>> align([("May", "M"), (" ", ""), ("5", "d")], [("5", "d"), (" ", ""), ("mai", "M")])
    ((0, 1), (1, 0))
    """
    left, right = _tagged(source), _tagged(target)
    found = []
    for tag in dict.fromkeys(tag for _, tag in left if tag):
        ours = [place for place, (_, other) in enumerate(left) if other == tag]
        theirs = [place for place, (_, other) in enumerate(right) if other == tag]
        if tag == "number":
            found += _align_digits([(place, left[place][0]) for place in ours], [(p, right[p][0]) for p in theirs])
        else:
            found += [(one, other) for one in ours for other in theirs]
    return tuple(sorted(found))


def _align_digits(ours: list[tuple[int, str]], theirs: list[tuple[int, str]]) -> list[tuple[int, int]]:
    left = [place for place, word in ours if word.isalnum()]
    right = [place for place, word in theirs if word.isalnum()]
    if len(left) == len(right):
        return list(zip(left, right, strict=True))
    return [(one, other) for one in left for other in right]  # grouped in another way


def _tagged(parts: Parts) -> list[tuple[str, str]]:
    """The words of the text, each with the tag of the part in which it begins; a stop or comma stands for nothing."""
    tags: list[str] = []
    for text, tag in parts:
        tags += [tag] * len(text)
    whole = "".join(text for text, _ in parts)
    spaced = "".join(" " if letter.isspace() else letter for letter in whole)
    found = [(spaced[start:end], tags[start]) for start, end in split_words(spaced)]
    return [(word, "" if category(word[0]).startswith("P") else tag) for word, tag in found]
