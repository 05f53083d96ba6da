"""CLDR phrases: dates, units, money, lists and relative times in a language, with word alignment."""

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

from peasy.tokenization.encoding import split_words

TaggedParts = list[tuple[str, str]]
"""Text in parts, each tagged with what it expresses ("" for literals)."""

DateStyle = Literal["full", "long", "medium"]
MoneyStyle = Literal["standard", "name"]
ListStyle = Literal["standard", "or"]
TimeUnit = Literal["second", "minute", "hour", "day", "week", "month", "year"]

SECONDS_PER_UNIT: dict[TimeUnit, int] = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 604800,
    "month": 2592000,
    "year": 31536000,
}

_EQUIVALENT_FIELDS = {"L": "M", "c": "E", "e": "E"}


def format_date_parts(day: date, style: DateStyle, locale: Locale) -> TaggedParts:
    """Format a date; the tags are CLDR's field letters."""
    formatted = DateTimeFormat(day, locale)
    return [(text if literal else formatted[text], tag) for text, tag, literal in _date_pattern(style, locale)]


@cache
def _date_pattern(style: DateStyle, locale: Locale) -> tuple[tuple[str, str, bool], ...]:
    tokens = tokenize_pattern(locale.date_formats[style].pattern)
    return tuple(
        (value, "", True)
        if isinstance(value, str)
        else (value[0] * value[1], _EQUIVALENT_FIELDS.get(value[0], value[0]), False)
        for _, value in tokens
    )


def format_unit_parts(number: Decimal, unit: str, locale: Locale) -> TaggedParts:
    """Format a number with a unit of measurement, written out."""
    return _split_at_number(format_unit(number, unit, "long", locale=locale))


def format_money_parts(amount: Decimal, currency: str, style: MoneyStyle, locale: Locale) -> TaggedParts:
    """Format an amount of money, with the currency symbol ("standard") or name ("name")."""
    before, *rest = _split_at_number(format_currency(amount, currency, locale=locale, format_type=style))
    if before[0][-1:].isalpha() and rest:
        before = (before[0] + " ", before[1])  # CLDR's rule for alphabetic currency symbols, which Babel omits
    return [before, *rest]


def format_relative_time(count: int, unit: TimeUnit, locale: Locale) -> str:
    """Format a relative time: in `count` days, weeks, ..., or ago if the count is negative."""
    delta = timedelta(seconds=count * SECONDS_PER_UNIT[unit])
    return format_timedelta(delta, unit, threshold=10**9, add_direction=True, locale=locale)


def format_name_list(names: Sequence[str], style: ListStyle, locale: Locale) -> str:
    """Format a list of names with commas and "and" or "or"."""
    return format_list(names, style, locale=locale)


def _split_at_number(text: str) -> TaggedParts:
    """Split a text into the parts before, in and after the number."""
    digits = [position for position, character in enumerate(text) if character.isdigit()]
    if not digits:  # some languages use a word form instead of the number one or two
        return [(text, "what")]
    start, end = digits[0], digits[-1] + 1
    return [(text[:start], "what"), (text[start:end], "number"), (text[end:], "what")]


def join_parts(parts: TaggedParts) -> str:
    """Join the parts, with plain spaces instead of CLDR's typographic ones.

    >>> join_parts([("1\\u202f234", "number"), ("\\xa0€", "what")])
    '1 234 €'
    """
    return " ".join("".join(text for text, _ in parts).split())


def align_words(source: TaggedParts, target: TaggedParts) -> tuple[tuple[int, int], ...]:
    """Return the (source, target) word indices that correspond: words with the same tag, digit groups in order.

    >>> align_words([("May", "M"), (" ", ""), ("5", "d")], [("5", "d"), (" ", ""), ("mai", "M")])
    ((0, 1), (1, 0))
    """
    left, right = _tagged_words(source), _tagged_words(target)
    pairs = []
    for tag in dict.fromkeys(tag for _, tag in left if tag):
        source_words = [index for index, (_, word_tag) in enumerate(left) if word_tag == tag]
        target_words = [index for index, (_, word_tag) in enumerate(right) if word_tag == tag]
        if tag == "number":
            source_digits = [(index, left[index][0]) for index in source_words]
            target_digits = [(index, right[index][0]) for index in target_words]
            pairs += _align_digits(source_digits, target_digits)
        else:
            pairs += [(source_index, target_index) for source_index in source_words for target_index in target_words]
    return tuple(sorted(pairs))


def _align_digits(source: list[tuple[int, str]], target: list[tuple[int, str]]) -> list[tuple[int, int]]:
    left = [index for index, word in source if word.isalnum()]
    right = [index for index, word in target if word.isalnum()]
    if len(left) == len(right):
        return list(zip(left, right, strict=True))
    # The languages group digits differently.
    return [(source_index, target_index) for source_index in left for target_index in right]


def _tagged_words(parts: TaggedParts) -> list[tuple[str, str]]:
    """Return the words, each with the tag of the part in which it begins; punctuation has no tag."""
    tags: list[str] = []
    for text, tag in parts:
        tags += [tag] * len(text)
    whole = "".join(text for text, _ in parts)
    spaced = "".join(" " if letter.isspace() else letter for letter in whole)
    words = [(spaced[start:end], tags[start]) for start, end in split_words(spaced)]
    return [(word, "" if category(word[0]).startswith("P") else tag) for word, tag in words]
