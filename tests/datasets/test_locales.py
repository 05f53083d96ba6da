"""`locales`: pairs with the same meaning, disjoint splits, correct word alignments."""

from collections import Counter
from datetime import date
from decimal import Decimal

import pytest
from babel import Locale
from babel.dates import format_date
from babel.numbers import format_currency

from peasy.datasets import locales, open_corpus
from peasy.datasets.locales import CATEGORIES
from peasy.tokenization.encoding import split_words

EN, FR, DE = Locale("en"), Locale("fr"), Locale("de")


@pytest.fixture(scope="module")
def corpus():
    return open_corpus("locales", num_pairs=4000)


def words(text):
    return [text[start:end] for start, end in split_words(text)]


def test_splits_are_disjoint_on_both_sides(corpus):
    train, valid = list(corpus.documents("train")), list(corpus.documents("valid"))
    assert not {pair.source for pair in train} & {pair.source for pair in valid}
    assert not {pair.target for pair in train} & {pair.target for pair in valid}
    assert 0.07 < len(valid) / (len(train) + len(valid)) < 0.13


def test_each_source_has_one_translation(corpus):
    pairs = [*corpus.documents("train"), *corpus.documents("valid")]
    assert len({pair.source for pair in pairs}) == len(pairs)


def test_every_category_is_in_both_splits(corpus):
    for split in corpus.splits:
        assert set(Counter(pair.category for pair in corpus.documents(split))) == set(CATEGORIES)


def test_validation_words_occur_in_training():
    """Values are split, not templates: every word and nearly every digit group occurs in training."""
    corpus = open_corpus("locales", num_pairs=10_000)
    known = {word for pair in corpus.documents("train") for word in words(f"{pair.source} {pair.target}")}
    validation = [pair for pair in corpus.documents("valid") if pair.category in ("date", "unit", "money")]
    unknown = [word for pair in validation for word in words(f"{pair.source} {pair.target}") if word not in known]
    assert len(validation) > 500
    assert not [word for word in unknown if not word.isdigit()]
    assert len(unknown) < 0.02 * len(validation)


def test_dates_and_money_match_babel():
    """Assembled from parts here, formatted whole by Babel."""
    for number in range(0, 20_000, 777):
        day = date.fromordinal(date(1960, 1, 1).toordinal() + number)
        for locale in (EN, FR, DE):
            for style in ("full", "long", "medium"):
                whole = " ".join(format_date(day, style, locale=locale).split())
                assert locales.join_parts(locales.date_parts(day, style, locale)) == whole
    money = locales.join_parts(locales.money_parts(Decimal("1234.50"), "EUR", "standard", FR))
    assert money == " ".join(format_currency(Decimal("1234.50"), "EUR", locale=FR).split())


def test_dates_are_aligned_word_by_word():
    day = date(2026, 11, 15)
    source, target = locales.date_parts(day, "full", EN), locales.date_parts(day, "full", FR)
    ours, theirs = words(locales.join_parts(source)), words(locales.join_parts(target))
    assert [(ours[a], theirs[b]) for a, b in locales.align_words(source, target)] == [
        ("Sunday", "dimanche"),
        ("November", "novembre"),
        ("15", "15"),
        ("2026", "2026"),
    ]


def test_alignments_are_valid_and_keep_digits(corpus):
    for split in corpus.splits:
        for pair in corpus.documents(split):
            ours, theirs = words(pair.source), words(pair.target)
            linked = [(ours[a], theirs[b]) for a, b in pair.alignment]
            assert bool(linked) == (pair.category in ("date", "unit", "money"))
            if pair.category in ("unit", "money"):
                digits = [word for word in ours if word.isdigit()]
                assert [one for one, other in linked if one.isdigit() and one == other] == digits


def test_alphabetic_currency_symbols_are_spaced():
    assert locales.join_parts(locales.money_parts(Decimal(85), "NOK", "standard", EN)) == "NOK 85.00"


def test_only_plain_spaces(corpus):
    strange = {letter for pair in corpus.documents() for letter in pair.source + pair.target if letter.isspace()}
    assert strange == {" "}


@pytest.mark.parametrize("languages", ["en-de", "fr-en", "en-ja", "de-ar", "en_GB-pt_BR", "hi-ru", "en-zh_Hant"])
def test_many_language_pairs(languages):
    corpus = open_corpus(f"locales:{languages}", num_pairs=400)
    assert corpus.name == f"locales:{languages}" or "zh_Hant" in languages
    assert len(list(corpus.documents())) > 200
    assert all(pair.source.strip() and pair.target.strip() for pair in corpus.documents())
    assert corpus.card.notes["Babel"]
