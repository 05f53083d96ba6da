"""Parallel corpus `locales` for any two languages, from the CLDR data of Babel.

Dates, units, money, lists, relative times and names. Pairs are split by meaning: neither side of a validation pair
occurs in the training split, while every word of a validation date or amount does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property
from importlib.metadata import version
from random import Random

from babel import Locale
from babel.core import UnknownLocaleError
from babel.localedata import locale_identifiers
from babel.numbers import get_currency_precision

from peasy.datasets import cldr
from peasy.datasets.corpus import Corpus
from peasy.datasets.sample import Sample, TextPair
from peasy.datasets.synthetic import is_validation
from peasy.errors import InvalidInput, did_you_mean

CATEGORIES = {"date": 30, "unit": 25, "money": 25, "list": 6, "relative": 8, "name": 6}
"""Categories with their share of the corpus, in percent."""

_FIRST_DAY, _LAST_DAY = date(1950, 1, 1).toordinal(), date(2049, 12, 31).toordinal()
_DATES: tuple[cldr.DateStyle, ...] = ("full", "long", "medium")
_MONEY: tuple[cldr.MoneyStyle, ...] = ("standard", "name")
_LISTS: tuple[cldr.ListStyle, ...] = ("standard", "or")
_UNITS = {
    "length": ("kilometer", "meter", "centimeter", "millimeter", "mile", "yard", "foot", "inch"),
    "mass": ("kilogram", "gram", "milligram", "pound", "ounce"),
    "volume": ("liter", "milliliter", "cubic-meter", "gallon", "teaspoon"),
    "area": ("square-kilometer", "square-meter", "hectare", "acre"),
    "duration": ("year", "month", "week", "day", "hour", "minute", "second"),
    "speed": ("kilometer-per-hour", "meter-per-second", "mile-per-hour"),
    "temperature": ("celsius", "fahrenheit"),
    "digital": ("gigabyte", "megabyte", "kilobyte"),
    "power": ("kilowatt", "watt"),
    "energy": ("joule", "kilowatt-hour"),
    "electric": ("volt", "ampere"),
    "frequency": ("hertz", "megahertz"),
    "pressure": ("hectopascal",),
    "angle": ("degree",),
    "graphics": ("pixel",),
}
_CURRENCIES = (
    "EUR", "USD", "GBP", "JPY", "CHF", "CAD", "AUD", "CNY", "INR", "BRL",
    "SEK", "NOK", "DKK", "PLN", "CZK", "MXN", "ZAR", "KRW", "TRY", "NZD",
)  # fmt: skip


@dataclass(frozen=True)
class LocalesConfig:
    """Options of `locales`."""

    languages: str = "en-fr"
    """Source and target language in CLDR names, such as en-fr or en_GB-pt_BR."""
    num_pairs: int = 40_000
    """Approximate number of pairs of both splits, 100 to 1,000,000."""

    def __post_init__(self) -> None:
        if not 100 <= self.num_pairs <= 1_000_000:
            raise InvalidInput(f"num_pairs is {self.num_pairs}; it must be between 100 and 1,000,000.")


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

    def __init__(self, options: LocalesConfig | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.options, self.seed = options or LocalesConfig(), seed
        self.source, self.target = _parse_languages(self.options.languages)
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
        is_valid = [is_validation(pair.target) for pair in pairs]
        return {
            "train": [pair for pair, valid in zip(pairs, is_valid, strict=True) if not valid],
            "valid": [pair for pair, valid in zip(pairs, is_valid, strict=True) if valid],
        }

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

    def _date(self, rng: Random) -> TextPair:
        day, style = date.fromordinal(rng.randint(_FIRST_DAY, _LAST_DAY)), rng.choice(_DATES)
        return _make_pair(
            "date", cldr.format_date_parts(day, style, self.source), cldr.format_date_parts(day, style, self.target)
        )

    def _unit(self, rng: Random) -> TextPair:
        number, (group, names) = _amount(rng, 1), rng.choice(list(_UNITS.items()))
        unit = f"{group}-{rng.choice(names)}"
        return _make_pair(
            "unit", cldr.format_unit_parts(number, unit, self.source), cldr.format_unit_parts(number, unit, self.target)
        )

    def _money(self, rng: Random) -> TextPair:
        currency, style = rng.choice(_CURRENCIES), rng.choice(_MONEY)
        amount = _amount(rng, get_currency_precision(currency))
        source, target = (
            cldr.format_money_parts(amount, currency, style, locale) for locale in (self.source, self.target)
        )
        return _make_pair("money", source, target)

    def _relative(self, rng: Random) -> TextPair:
        count, unit = rng.choice((-1, 1)) * rng.randint(1, 99), rng.choice(list(cldr.SECONDS_PER_UNIT))
        source, target = (cldr.format_relative_time(count, unit, locale) for locale in (self.source, self.target))
        return TextPair(_normalize_spaces(source), _normalize_spaces(target), "relative")

    def _list(self, rng: Random, names: list[TextPair]) -> TextPair:
        style = rng.choice(_LISTS)
        chosen = rng.sample(names, rng.randint(2, min(4, len(names))))
        source = cldr.format_name_list([pair.source for pair in chosen], style, self.source)
        target = cldr.format_name_list([pair.target for pair in chosen], style, self.target)
        return TextPair(_normalize_spaces(source), _normalize_spaces(target), "list")

    def _names(self) -> list[TextPair]:
        """Return territories, languages and currencies that have a name in both languages."""
        pairs = []
        for what in ("territories", "languages", "currencies"):
            source_names, target_names = getattr(self.source, what), getattr(self.target, what)
            shared = sorted(set(source_names) & set(target_names))
            pairs += [
                TextPair(_normalize_spaces(source_names[key]), _normalize_spaces(target_names[key]), "name")
                for key in shared
            ]
        return pairs


def _make_pair(category: str, source: cldr.TaggedParts, target: cldr.TaggedParts) -> TextPair:
    return TextPair(cldr.join_parts(source), cldr.join_parts(target), category, cldr.align_words(source, target))


def _normalize_spaces(text: str) -> str:
    return " ".join(text.split())


def _amount(rng: Random, decimals: int) -> Decimal:
    """Draw an amount: mostly small numbers, some in thousands, some with decimals."""
    whole = rng.randint(1000, 99_999) if rng.random() < 0.25 else rng.randint(1, 999)
    if decimals and rng.random() < 0.4:
        return Decimal(f"{whole}.{rng.randrange(1, 10**decimals):0{decimals}}")
    return Decimal(whole)


def _parse_languages(text: str) -> tuple[Locale, Locale]:
    names = text.split("-")
    if len(names) != 2:
        raise InvalidInput(f'"{text}" is not a pair of languages.', hint="For example en-fr, or en_GB-pt_BR.")
    source, target = map(_parse_locale, names)
    if source == target:
        raise InvalidInput(f"{text} has the same language on both sides.")
    return source, target


def _parse_locale(name: str) -> Locale:
    try:
        return Locale.parse(name)
    except (UnknownLocaleError, ValueError, TypeError):
        hint = did_you_mean(name, locale_identifiers()) or "For example en, fr, de, pt_BR, ja."
        raise InvalidInput(f'There is no language "{name}" in CLDR.', hint=hint) from None
