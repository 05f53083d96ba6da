"""`order-and-size`: word alignment by cross-attention; accuracy by length with attention and with one fixed vector."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import product
from random import Random

import numpy as np

from peasy.commands.align import LayerHead, best_alignment_head, link_accuracies
from peasy.commands.load import LoadedModel
from peasy.datasets import Corpus, TextPair, open_corpus
from peasy.datasets.corpus import is_validation
from peasy.experiments.models import ModelSource, format_head, open_model, train_temporary
from peasy.experiments.result import ExperimentResult, OnStatus, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison, Outcome
from peasy.tokenization.encoding import split_words
from peasy.views.document import DocumentPart
from peasy.views.inspection import alignment_links

_SHOWN = ("Sunday, November 15, 2026", "European Union")
CATEGORIES = ("date", "unit", "money")
_CONTROL_MODELS = {"attention": True, "one fixed vector": False}
_MAX_DATES = 5
"""Maximum number of dates per sample for the two small translators of the control."""
_BATCH_SIZE = 64


@dataclass
class TranslatorAlignment:
    """Results of one translator: its best alignment head (chosen on other pairs), error and accuracy of each pair.

    `errors`: fraction of words aligned wrongly; `exact`: whether the translation matches the reference exactly.
    """

    name: str
    head: LayerHead
    categories: tuple[str, ...]
    errors: tuple[float, ...]
    exact: tuple[bool, ...]

    def mean(self, category: str) -> tuple[float, float]:
        """Mean error and fraction of exact translations of a category."""
        rows = [index for index, name in enumerate(self.categories) if name == category]
        return tuple(float(np.mean([side[index] for index in rows])) for side in (self.errors, self.exact))  # type: ignore[return-value]


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "locales-fr",
    rnn_model: ModelSource = "locales-fr-2015", pairs: int = 24, steps: int = 300,
) -> ExperimentResult:  # fmt: skip
    """Align `pairs` of each category by both translators; then train two small ones, with and without attention."""
    selection, test = _draw_pairs(pairs, seed)
    translators = [open_model(name) for name in (model, rnn_model)]
    results = []
    for loaded in translators:
        on_status(f"{loaded.name}: aligning {len(selection) + len(test)} sentence pairs ...")
        results.append(_evaluate_translator(loaded, selection, test))
    pictures = []
    for text, (loaded, (layer, head)) in product(_SHOWN, zip(translators, [by.head for by in results], strict=True)):
        alignment = alignment_links(loaded.look(text).alignment(layer=layer, head=head))
        pictures.append(replace(alignment, title=f"{loaded.name}, head {format_head((layer, head))}"))
    controls = _CONTROL_MODELS.items() if steps else ()
    accuracy = {name: train_on_dates(name, attention, seed, steps, on_status) for name, attention in controls}
    diagonal_errors = [diagonal_error([pair]) for pair in test]
    return conclude(results, diagonal_errors, reordering(test), pictures, accuracy, seed)


def _draw_pairs(count: int, seed: int) -> tuple[list[TextPair], list[TextPair]]:
    """Draw validation pairs: some to select a head, and `count` of each category to evaluate it."""
    validation = [pair for pair in open_corpus("locales:en-fr").documents("valid") if isinstance(pair, TextPair)]
    Random(seed).shuffle(validation)
    selection, test = [], []
    for category in CATEGORIES:
        candidates = [pair for pair in validation if pair.category == category and pair.alignment]
        test += candidates[:count]
        selection += candidates[count : count + max(count // 2, 1)]
    return selection, test


def _evaluate_translator(
    loaded: LoadedModel, selection: Sequence[TextPair], test: Sequence[TextPair]
) -> TranslatorAlignment:
    """Evaluate the head that aligns best on other pairs."""
    from peasy.commands.translate import translate

    best = best_alignment_head(loaded, selection)
    translations = translate(loaded, [pair.source for pair in test]).texts
    return TranslatorAlignment(
        loaded.name,
        best,
        tuple(pair.category for pair in test),
        tuple(1 - float(link_accuracies(loaded, pair)[best]) for pair in test),
        tuple(text == pair.target for text, pair in zip(translations, test, strict=True)),
    )


def diagonal_error(pairs: Sequence[TextPair]) -> float:
    """Alignment error of the diagonal baseline: each word aligned by its relative position."""
    wrong = []
    for pair in pairs:
        source_length, target_length = len(split_words(pair.source)), len(split_words(pair.target))
        reference: dict[int, set[int]] = {}
        for source, target in pair.alignment:
            reference.setdefault(target, set()).add(source)
        wrong += [
            round(t * (source_length - 1) / max(target_length - 1, 1)) not in sources
            for t, sources in reference.items()
        ]
    return float(np.mean(wrong))


def reordering(pairs: Sequence[TextPair]) -> tuple[float, float]:
    """Return the fraction of pairs with crossing alignments, and of pairs with different lengths."""
    crossed = [any(a < c and b > d for a, b in p.alignment for c, d in p.alignment) for p in pairs]
    resized = [len(split_words(pair.source)) != len(split_words(pair.target)) for pair in pairs]
    return float(np.mean(crossed)), float(np.mean(resized))


class DatesCorpus(Corpus):
    """Parallel corpus (en-fr) of one to `_MAX_DATES` dates in a row: all words are known, only the length varies."""

    kind, name, licence = "pairs", "rows of dates", "Unicode-3.0 (CLDR)"
    description = "one to five dates in a row, en-fr"

    def __init__(self, seed: int, size: int, held_out: int = 400) -> None:
        super().__init__()
        self.seed, self.sizes = seed, {"train": size, "valid": held_out}

    def read(self, split: str) -> Iterator[TextPair]:
        """Yield the samples of a split; validation dates never occur in training."""
        rng = Random(f"dates/{self.seed}/{split}")
        for _ in range(self.sizes[split]):
            yield self.row(rng, rng.randint(1, _MAX_DATES), split)

    def row(self, rng: Random, count: int, split: str) -> TextPair:
        """Return a sample with `count` dates."""
        from babel.dates import format_date

        days: list[date] = []
        while len(days) < count:
            day = date(rng.randint(1950, 2049), rng.randint(1, 12), rng.randint(1, 28))
            if is_validation(day.isoformat()) == (split == "valid"):
                days.append(day)
        english, french = (
            " ".join(format_date(day, "long", locale=language).replace(",", "") for day in days)
            for language in ("en", "fr")
        )
        return TextPair(english, french, str(count))


def train_on_dates(
    name: str, use_attention: bool, seed: int, steps: int, on_status: OnStatus
) -> dict[int, tuple[float, ...]]:
    """Train a small recurrent translator; return its word accuracy of each row, by number of dates."""
    from peasy.evaluation.language import translate_greedy

    corpus = DatesCorpus(seed, size=steps * _BATCH_SIZE)
    settings = {
        "tokenizer": {"algorithm": "words", "vocab_size": 512},
        "optimizer": {"kind": "adamw", "lr": 6e-3},
        "batch_size": _BATCH_SIZE,
        "model": {"use_attention": use_attention, "d_model": 96},
    }
    trained = train_temporary("rnn-translator", corpus, name, on_status, steps=steps, seed=seed, settings=settings)
    rng, accuracy = Random(seed), {}
    for count in range(1, _MAX_DATES + 1):
        rows = [corpus.row(rng, count, "valid") for _ in range(40)]
        translations = translate_greedy(trained.model, [row.source for row in rows])
        pairs = zip(translations, rows, strict=True)
        accuracy[count] = tuple(_word_accuracy(text, row.target) for text, row in pairs)
    return accuracy


def _word_accuracy(translation: str, reference: str) -> float:
    """Return the fraction of reference words that are at their position.

    >>> _word_accuracy("5 mai 1999", "5 mars 1999")
    0.6666666666666666
    """
    expected, words = reference.split(), translation.split()
    return sum(word == other for word, other in zip(expected, words, strict=False)) / len(expected)


def conclude(
    results: Sequence[TranslatorAlignment], diagonal_errors: Sequence[float], changes: tuple[float, float],
    pictures: Sequence[DocumentPart], accuracy_by_length: Mapping[str, Mapping[int, Sequence[float]]], seed: int,
) -> ExperimentResult:  # fmt: skip
    """Each translator's alignment against the diagonal, pair by pair; and, without attention, accuracy must fall more
    from short rows to long ones, row by row."""
    comparisons = [
        Comparison.of_pairs(
            f"{by.name} aligns the right words", "error", by.errors, "diagonal", diagonal_errors, lower=True
        )
        for by in results
    ]  # fmt: skip
    aligned = all(comparison.outcome is Outcome.SUPPORTED for comparison in comparisons)
    baseline = float(np.mean(diagonal_errors))
    errors = "; ".join(
        f"{by.name}: {np.mean(by.errors):.0%} (exact translations: {np.mean(by.exact):.0%})" for by in results
    )
    verdict = (
        f"In {changes[0]:.0%} of validation pairs the word order changes, in {changes[1]:.0%} the number of words. "
        f"Alignment errors: {errors}; diagonal baseline: {baseline:.0%}. Attention "
        f"{'finds' if aligned else 'does NOT find'} the right words."
    )
    columns = [("translator", ""), ("head", ""), *((category, "") for category in CATEGORIES)]
    rows = [
        (by.name, format_head(by.head), *("{:.0%} / {:.0%}".format(*by.mean(name)) for name in CATEGORIES))
        for by in results
    ]
    parts: list[DocumentPart] = [table("Alignment error / exact translations (validation)", columns, rows), *pictures]
    means = {
        name: {count: float(np.mean(rows)) for count, rows in by.items()} for name, by in accuracy_by_length.items()
    }
    if accuracy_by_length:
        comparison, sentence, figures = _compare_lengths(accuracy_by_length, means)
        comparisons.append(comparison)
        verdict, parts = f"{verdict} {sentence}", [*parts, *figures]
    numbers = {
        "translators": {
            by.name: {
                "head": format_head(by.head),
                **{what: {name: by.mean(name)[i] for name in CATEGORIES} for i, what in enumerate(("error", "exact"))},
            }
            for by in results
        },
        "diagonal_baseline": baseline,
        "changes": {"order": changes[0], "number": changes[1]},
        "lengths": means,
    }
    return make_result("order-and-size", parts, verdict, comparisons, numbers, seed)


def _compare_lengths(
    accuracy: Mapping[str, Mapping[int, Sequence[float]]], means: Mapping[str, Mapping[int, float]]
) -> tuple[Comparison, str, list[DocumentPart]]:
    """Compare how much accuracy falls from short rows to long ones: with attention, and with one fixed vector."""
    drops = {name: [means[name][1] - one for one in by[_MAX_DATES]] for name, by in accuracy.items()}
    comparison = Comparison.of_pairs(
        "without attention, length hurts more", "fall of accuracy", drops["one fixed vector"],
        "with attention", drops["attention"],
    )  # fmt: skip
    fall = {name: (float(np.mean(drop)), means[name][_MAX_DATES]) for name, drop in drops.items()}
    sentence = (
        f"From 1 to {_MAX_DATES} dates per sequence, word accuracy falls by {fall['one fixed vector'][0]:.2f} to "
        f"{fall['one fixed vector'][1]:.2f} with one fixed vector and by {fall['attention'][0]:.2f} to "
        f"{fall['attention'][1]:.2f} with attention: without attention, length "
        f"{'hurts more' if comparison.outcome is Outcome.SUPPORTED else 'does not hurt more'}."
    )
    columns = [("dates", ""), *((name, ".2f") for name in means)]
    lengths = ((count, *(by[count] for by in means.values())) for count in range(1, _MAX_DATES + 1))
    return (
        comparison,
        sentence,
        [
            table("Word accuracy of two small recurrent translators", columns, lengths),
            curves("Word accuracy by length", means, "dates per sequence", "word accuracy"),
        ],
    )
