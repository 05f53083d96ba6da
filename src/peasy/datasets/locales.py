"""Parallel corpus `locales` for any two languages, from the CLDR data of Babel.

Dates, units, money, lists, relative times and names. Pairs are split by meaning: neither side of a validation pair
occurs in the training split, while every word of a validation date or amount does.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import cache, cached_property, partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from random import Random
from typing import Annotated, Literal
from unicodedata import category as unicode_category

from annotated_types import Ge, Le
from babel import Locale
from babel.core import UnknownLocaleError
from babel.dates import DateTimeFormat, format_timedelta, tokenize_pattern
from babel.lists import format_list
from babel.localedata import locale_identifiers
from babel.numbers import format_currency, get_currency_precision
from babel.units import format_unit

from peasy import config
from peasy.datasets.corpus import Corpus, Sample, TextPair, is_validation
from peasy.errors import InvalidInput, did_you_mean
from peasy.parameters import BoundedSettings
from peasy.tokenization.encoding import split_words

CATEGORIES = {"date": 30, "unit": 25, "money": 25, "list": 6, "relative": 8, "name": 6}
"""Categories with their share of the corpus, in percent."""

_TaggedParts = list[tuple[str, str]]
"""Text in parts, each tagged with what it expresses ("" for literals); words with the same tag are aligned."""
_DateStyle = Literal["full", "long", "medium"]
_MoneyStyle = Literal["standard", "name"]
_TimeUnit = Literal["second", "minute", "hour", "day", "week", "month", "year"]

_FIRST_DAY, _LAST_DAY = date(1950, 1, 1).toordinal(), date(2049, 12, 31).toordinal()
_DATES: tuple[_DateStyle, ...] = ("full", "long", "medium")
_MONEY: tuple[_MoneyStyle, ...] = ("standard", "name")
_LISTS: tuple[Literal["standard", "or"], ...] = ("standard", "or")
_SECONDS: dict[_TimeUnit, int] = {
    "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000,
}  # fmt: skip
_EQUIVALENT_FIELDS = {"L": "M", "c": "E", "e": "E"}
_WORDS = config.load(Path(__file__).with_suffix(".toml"))
_UNITS = {group: names.split() for group, names in _WORDS["units"].items()}
_CURRENCIES = _WORDS["currencies"].split()


class LocalesConfig(BoundedSettings):
    """Options of `locales`."""

    languages: str = "en-fr"
    """Source and target language in CLDR names, such as en-fr or en_GB-pt_BR."""
    num_pairs: Annotated[int, Ge(100), Le(1_000_000)] = 40_000
    """Approximate number of pairs of both splits."""


class Locales(Corpus):
    """Translation pairs with their category; dates, units and money have a word alignment.

    >>> pairs = Locales(LocalesConfig(num_pairs=500)).documents("valid")
    >>> pair = next(pair for pair in pairs if pair.category == "unit")
    >>> pair.source, pair.target
    ('98,616.2 joules', '98 616,2 joules')
    """

    kind = "pairs"
    description = "dates, units, money, lists, relative times and names in two languages"
    licence = "Unicode-3.0 (CLDR), through Babel (BSD-3-Clause)"

    def __init__(self, options: LocalesConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.options, self.seed = options, seed
        text = self.options.languages
        names = text.split("-")
        if len(names) != 2:
            raise InvalidInput(f'"{text}" is not a pair of languages.', hint="For example en-fr, or en_GB-pt_BR.")
        locales = []
        for name in names:
            try:
                locales.append(Locale.parse(name))
            except (UnknownLocaleError, ValueError, TypeError):
                hint = did_you_mean(name, locale_identifiers()) or "For example en, fr, de, pt_BR, ja."
                raise InvalidInput(f'There is no language "{name}" in CLDR.', hint=hint) from None
        if locales[0] == locales[1]:
            raise InvalidInput(f"{text} has the same language on both sides.")
        self.source, self.target = locales[0], locales[1]
        self.name = f"locales:{self.source}-{self.target}"

    def read(self, split: str) -> Iterator[Sample]:
        """Yield the pairs of a split, all categories mixed."""
        return iter(self._pairs[split])

    def notes(self) -> Mapping[str, str]:
        """Return the source of the data and the number of pairs in each category."""
        counts = {name: sum(pair.category == name for pair in self._pairs["train"]) for name in CATEGORIES}
        return {
            "Babel": version("babel"),
            "languages": f"{self.source.get_display_name('en')} to {self.target.get_display_name('en')}",
            "categories": ", ".join(f"{name} {count:,}" for name, count in counts.items()),
            "validation split": "by meaning: neither side of a validation pair occurs in the training split",
            "seed": str(self.seed),
        }

    @cached_property
    def _pairs(self) -> dict[str, list[TextPair]]:
        """All pairs by split: one translation per source text, and each translation in one split only."""
        rng = Random(f"locales/{self.seed}/{self.source}/{self.target}")
        by_source: dict[str, TextPair] = {}
        for pair in self._draw(rng):
            by_source.setdefault(pair.source, pair)
        pairs = list(by_source.values())
        rng.shuffle(pairs)
        splits: dict[str, list[TextPair]] = {"train": [], "valid": []}
        for pair in pairs:
            splits["valid" if is_validation(pair.target) else "train"].append(pair)
        return splits

    def _draw(self, rng: Random) -> Iterator[TextPair]:
        names = self._names()
        rng.shuffle(names)
        draw_functions = {"date": self._date, "unit": self._unit, "money": self._money, "relative": self._relative}
        for category, share in CATEGORIES.items():
            count = self.options.num_pairs * share // 100
            if category == "name":
                yield from names[:count]
            elif category == "list":
                train_names = [pair for pair in names if not is_validation(pair.target)][: max(count, 50)]
                yield from (self._list(rng, train_names) for _ in range(count))
            else:
                yield from (draw_functions[category](rng) for _ in range(count))

    def _pair(self, category: str, phrase: Callable[[Locale], _TaggedParts]) -> TextPair:
        source, target = phrase(self.source), phrase(self.target)
        return TextPair(join_parts(source), join_parts(target), category, align_words(source, target))

    def _date(self, rng: Random) -> TextPair:
        day, style = date.fromordinal(rng.randint(_FIRST_DAY, _LAST_DAY)), rng.choice(_DATES)
        return self._pair("date", lambda locale: date_parts(day, style, locale))

    def _unit(self, rng: Random) -> TextPair:
        number, (group, names) = _amount(rng, 1), rng.choice(list(_UNITS.items()))
        unit = f"{group}-{rng.choice(names)}"
        return self._pair("unit", lambda locale: _split_at_number(format_unit(number, unit, "long", locale=locale)))

    def _money(self, rng: Random) -> TextPair:
        currency, style = rng.choice(_CURRENCIES), rng.choice(_MONEY)
        amount = _amount(rng, get_currency_precision(currency))
        return self._pair("money", lambda locale: money_parts(amount, currency, style, locale))

    def _relative(self, rng: Random) -> TextPair:
        count, unit = rng.choice((-1, 1)) * rng.randint(1, 99), rng.choice(list(_SECONDS))
        delta = timedelta(seconds=count * _SECONDS[unit])
        phrase = partial(format_timedelta, delta, unit, threshold=10**9, add_direction=True)
        return self._pair("relative", lambda locale: [(phrase(locale=locale), "")])

    def _list(self, rng: Random, names: list[TextPair]) -> TextPair:
        style = rng.choice(_LISTS)
        chosen = rng.sample(names, rng.randint(2, min(4, len(names))))
        sides = {self.source: [pair.source for pair in chosen], self.target: [pair.target for pair in chosen]}
        return self._pair("list", lambda locale: [(format_list(sides[locale], style, locale=locale), "")])

    def _names(self) -> list[TextPair]:
        """Return territories, languages and currencies that have a name in both languages."""
        pairs = []
        for what in ("territories", "languages", "currencies"):
            source, target = getattr(self.source, what), getattr(self.target, what)
            for key in sorted(set(source) & set(target)):
                pairs.append(TextPair(join_parts([(source[key], "")]), join_parts([(target[key], "")]), "name"))
        return pairs


def date_parts(day: date, style: _DateStyle, locale: Locale) -> _TaggedParts:
    """Format a date; the tags are CLDR's field letters."""
    formatted = DateTimeFormat(day, locale)
    return [(formatted[text] if tag else text, tag) for text, tag in _date_pattern(style, locale)]


@cache
def _date_pattern(style: _DateStyle, locale: Locale) -> _TaggedParts:
    """Return a date pattern as fields with their tag, and literals without one."""
    values = [value for _, value in tokenize_pattern(locale.date_formats[style].pattern)]
    return [
        (value, "") if isinstance(value, str) else (value[0] * value[1], _EQUIVALENT_FIELDS.get(value[0], value[0]))
        for value in values
    ]


def money_parts(amount: Decimal, currency: str, style: _MoneyStyle, locale: Locale) -> _TaggedParts:
    """Format an amount of money, with the currency symbol ("standard") or name ("name")."""
    (before, tag), *rest = _split_at_number(format_currency(amount, currency, locale=locale, format_type=style))
    if before[-1:].isalpha() and rest:
        before += " "  # CLDR's rule for alphabetic currency symbols, which Babel omits
    return [(before, tag), *rest]


def _split_at_number(text: str) -> _TaggedParts:
    """Split a text into the parts before, in and after the number."""
    digits = [position for position, character in enumerate(text) if character.isdigit()]
    if not digits:  # some languages use a word form instead of the number one or two
        return [(text, "what")]
    start, end = digits[0], digits[-1] + 1
    return [(text[:start], "what"), (text[start:end], "number"), (text[end:], "what")]


def join_parts(parts: _TaggedParts) -> str:
    """Join the parts, with plain spaces instead of CLDR's typographic ones."""
    return " ".join("".join(text for text, _ in parts).split())


def align_words(source: _TaggedParts, target: _TaggedParts) -> tuple[tuple[int, int], ...]:
    """Return the (source, target) word indices that correspond: words with the same tag, digit groups in order.

    >>> align_words([("May", "M"), (" ", ""), ("5", "d")], [("5", "d"), (" ", ""), ("mai", "M")])
    ((0, 1), (1, 0))
    """
    sides = [_tagged_words(source), _tagged_words(target)]
    pairs: list[tuple[int, int]] = []
    for tag in dict.fromkeys(tag for _, tag in sides[0] if tag):
        left, right = ([index for index, word in enumerate(side) if word[1] == tag] for side in sides)
        if tag == "number":
            left = [index for index in left if sides[0][index][0].isalnum()]
            right = [index for index in right if sides[1][index][0].isalnum()]
        in_order = tag == "number" and len(left) == len(right)  # otherwise the languages group digits differently
        pairs += zip(left, right, strict=True) if in_order else product(left, right)
    return tuple(sorted(pairs))


def _tagged_words(parts: _TaggedParts) -> list[tuple[str, str]]:
    """Return the words, each with the tag of the part in which it begins; punctuation has no tag."""
    tags = [tag for text, tag in parts for _ in text]
    whole = "".join(text for text, _ in parts)
    spaced = "".join(" " if letter.isspace() else letter for letter in whole)
    words = [(spaced[start:end], tags[start]) for start, end in split_words(spaced)]
    return [(word, "" if unicode_category(word[0]).startswith("P") else tag) for word, tag in words]


def _amount(rng: Random, decimals: int) -> Decimal:
    """Draw an amount: mostly small numbers, some in thousands, some with decimals."""
    whole = rng.randint(1000, 99_999) if rng.random() < 0.25 else rng.randint(1, 999)
    if decimals and rng.random() < 0.4:
        return Decimal(f"{whole}.{rng.randrange(1, 10**decimals):0{decimals}}")
    return Decimal(whole)
