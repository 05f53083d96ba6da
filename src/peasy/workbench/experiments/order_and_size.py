"""`order-and-size`: cross-attention alignment of translations with reordered words, against a fixed-vector control."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from babel import Locale

from peasy.corpora import Corpus, Pair, open_corpus, phrase
from peasy.corpora.generated import is_held_out
from peasy.parts import need
from peasy.text.encoding import split_words
from peasy.views.alignment import ribbons
from peasy.views.document import Curves, Part, Table
from peasy.workbench.aligner import Head, best_head, head_scores
from peasy.workbench.experiments.finding import Finding, Hear, unheard
from peasy.workbench.experiments.subject import Subject, name_head, open_subject

if TYPE_CHECKING:
    from peasy.workbench.load import LoadedModel

QUESTION = "A translation has another word order and another number of words. Does attention align the right words?"
SHOWN = ("Sunday, November 15, 2026", "European Union")
CATEGORIES = ("date", "unit", "money")
WAYS = {"attention": True, "one fixed vector": False}
MOST = 5
"""Maximum number of dates per sample for the two small translators of the control."""
SMALL: dict[str, Any] = {
    "tokenizer": {"by": "words", "vocabulary": 512},
    "optimizer": {"kind": "adamw", "lr": 6e-3},
    "batch": 64,
}


@dataclass
class Aligned:
    """Results of one translator: its best alignment head (chosen on other pairs), error and accuracy by category.

    `error`: fraction of words aligned wrongly; `exact`: fraction of translations that match the reference exactly.
    """

    name: str
    head: Head
    error: dict[str, float] = field(default_factory=dict)
    exact: dict[str, float] = field(default_factory=dict)

    def mean(self, what: str) -> float:
        """Mean of `error` or `exact` over categories."""
        return float(np.mean(list(getattr(self, what).values())))


def run(
    seed: int = 0, hear: Hear = unheard, model: Subject = "locales-fr", older: Subject = "locales-fr-2015",
    pairs: int = 24, steps: int = 400,
) -> Finding:  # fmt: skip
    """Align `pairs` of each category by both translators; then train two small ones, with and without attention."""
    need("torch")
    selection, test = draw_pairs(pairs, seed)
    translators = [open_subject(name) for name in (model, older)]
    results = []
    for loaded in translators:
        hear(f"{loaded.name}: aligning {len(selection) + len(test)} sentence pairs ...")
        results.append(judge_translator(loaded, selection, test))
    pictures = [picture(loaded, one, text) for text in SHOWN for loaded, one in zip(translators, results, strict=True)]
    accuracy = {name: learn_dates(name, attends, seed, steps, hear) for name, attends in WAYS.items()} if steps else {}
    diagonal_errors = {name: diagonal([pair for pair in test if pair.category == name]) for name in CATEGORIES}
    return conclude(results, diagonal_errors, crossing(test), pictures, accuracy, seed)


def draw_pairs(count: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Draw validation pairs: some to select a head, and `count` of each category to evaluate it."""
    validation = [pair for pair in open_corpus("locales:en-fr").documents("valid") if isinstance(pair, Pair)]
    Random(seed).shuffle(validation)
    selection, test = [], []
    for category in CATEGORIES:
        candidates = [pair for pair in validation if pair.category == category and pair.alignment]
        test += candidates[:count]
        selection += candidates[count : count + max(count // 2, 1)]
    return selection, test


def judge_translator(loaded: "LoadedModel", choose: Sequence[Pair], judge: Sequence[Pair]) -> Aligned:
    """Evaluate the head that aligns best on other pairs."""
    from peasy.workbench.translate import translate

    best = best_head(loaded, choose)
    result = Aligned(loaded.name, best)
    for category in CATEGORIES:
        chosen = [pair for pair in judge if pair.category == category]
        translations = translate(loaded, [pair.source for pair in chosen]).texts
        result.error[category] = 1 - float(np.mean([head_scores(loaded, pair)[best] for pair in chosen]))
        result.exact[category] = float(
            np.mean([text == pair.target for text, pair in zip(translations, chosen, strict=True)])
        )
    return result


def diagonal(pairs: Sequence[Pair]) -> float:
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


def crossing(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the fraction of pairs with crossing alignments, and of pairs with different lengths."""
    crossed = [any(a < c and b > d for a, b in p.alignment for c, d in p.alignment) for p in pairs]
    resized = [len(split_words(pair.source)) != len(split_words(pair.target)) for pair in pairs]
    return float(np.mean(crossed)), float(np.mean(resized))


def picture(loaded: "LoadedModel", found: Aligned, text: str) -> Part:
    """Draw a translation with ribbons to the source words it attends to."""
    layer, head = found.head
    alignment = ribbons(loaded.look(text).alignment(layer=layer, head=head).record)
    return replace(alignment, title=f"{loaded.name}, head {name_head(found.head)}")


class Dates(Corpus):
    """Parallel corpus (en-fr) of one to `MOST` dates in a row: all words are known, only the length varies."""

    kind, name, says, licence = "pairs", "rows of dates", "one to five dates in a row, en-fr", "Unicode-3.0 (CLDR)"

    def __init__(self, seed: int, size: int, held_out: int = 400) -> None:
        super().__init__()
        self.seed, self.sizes = seed, {"train": size, "valid": held_out}

    def read(self, split: str) -> Iterator[Pair]:
        """Yield the samples of a split; validation dates never occur in training."""
        rng = Random(f"dates/{self.seed}/{split}")
        for _ in range(self.sizes[split]):
            yield self.row(rng, rng.randint(1, MOST), split)

    def row(self, rng: Random, count: int, split: str) -> Pair:
        """Return a sample with `count` dates."""
        days = [_day(rng, split) for _ in range(count)]
        sides = [
            " ".join(phrase.plain(phrase.say_date(day, "long", Locale(language))).replace(",", "") for day in days)
            for language in ("en", "fr")
        ]
        return Pair(sides[0], sides[1], str(count))


def _day(rng: Random, split: str) -> date:
    while True:
        day = date(rng.randint(1950, 2049), rng.randint(1, 12), rng.randint(1, 28))
        if is_held_out(day.isoformat()) == (split == "valid"):
            return day


def learn_dates(name: str, attends: bool, seed: int, steps: int, hear: Hear) -> dict[int, float]:
    """Train a small recurrent translator; return its word accuracy by number of dates."""
    from peasy.workbench.experiments.learning import learn
    from peasy.workbench.measure import translate

    corpus = Dates(seed, size=steps * SMALL["batch"])
    settings = {**SMALL, "model": {"attends": attends, "d_model": 96}}
    learned = learn("rnn-translator", corpus, name, hear, steps=steps, seed=seed, settings=settings)
    rng, accuracy = Random(seed), {}
    for count in range(1, MOST + 1):
        rows = [corpus.row(rng, count, "valid") for _ in range(40)]
        translations = translate(learned.model, [row.source for row in rows])
        accuracy[count] = float(
            np.mean([right_words(text, row.target) for text, row in zip(translations, rows, strict=True)])
        )
    return accuracy


def right_words(said: str, wanted: str) -> float:
    """Return the fraction of reference words that are at their position.

    >>> right_words("5 mai 1999", "5 mars 1999")
    0.6666666666666666
    """
    reference, words = wanted.split(), said.split()
    return sum(word == other for word, other in zip(reference, words, strict=False)) / len(reference)


def conclude(
    found: Sequence[Aligned],
    ruler: Mapping[str, float],
    mismatch: tuple[float, float],
    pictures: Sequence[Part],
    lengths: Mapping[str, Mapping[int, float]],
    seed: int,
) -> Finding:
    """Holds if alignment beats the diagonal baseline by far, and the fixed-vector translator loses more with length."""
    baseline = float(np.mean(list(ruler.values())))
    aligned = all(translator.mean("error") < baseline / 2 for translator in found)
    errors = "; ".join(
        f"{translator.name}: {translator.mean('error'):.0%} (exact translations: {translator.mean('exact'):.0%})"
        for translator in found
    )
    verdict = (
        f"In {mismatch[0]:.0%} of validation pairs the word order changes, in {mismatch[1]:.0%} the number of words. "
        f"Alignment errors: {errors}; diagonal baseline: {baseline:.0%}. Attention "
        f"{'finds' if aligned else 'does NOT find'} the right words."
    )
    parts: list[Part] = [_table(found, ruler), *pictures]
    holds = aligned
    if lengths:
        drop = {name: accuracy[min(accuracy)] - accuracy[max(accuracy)] for name, accuracy in lengths.items()}
        worse = drop["one fixed vector"] > drop["attention"] + 0.1
        ends = {name: accuracy[max(accuracy)] for name, accuracy in lengths.items()}
        holds = holds and worse
        verdict += (
            f" From 1 to {MOST} dates per sequence, word accuracy falls by {drop['one fixed vector']:.2f} to "
            f"{ends['one fixed vector']:.2f} with one fixed vector and by {drop['attention']:.2f} to "
            f"{ends['attention']:.2f} with attention: without attention, length "
            f"{'hurts more' if worse else 'does not hurt more'}."
        )
        parts += [_lengths_table(lengths), _curves(lengths)]
    caveat = (
        "The head is the one that aligns best on other pairs; other heads do other things. A head may attend to a "
        "neighbouring word into which the encoder has mixed the right one, so a translation can be right and its "
        "alignment wrong. Reference alignments are known because the pairs are generated. The control is small and "
        "trained for a minute: a larger fixed vector holds more, but has a limit, too."
    )
    numbers = {
        "translators": {t.name: {"head": name_head(t.head), "error": t.error, "exact": t.exact} for t in found},
        "ruler": dict(ruler),
        "changes": {"order": mismatch[0], "number": mismatch[1]},
        "lengths": {name: dict(accuracy) for name, accuracy in lengths.items()},
    }
    return Finding("order-and-size", QUESTION, tuple(parts), verdict, holds, caveat, numbers, seed)


def _table(found: Sequence[Aligned], ruler: Mapping[str, float]) -> Table:
    rows = [(t.name, name_head(t.head), *(f"{t.error[c]:.0%} / {t.exact[c]:.0%}" for c in CATEGORIES)) for t in found]
    rows.append(("diagonal baseline", "", *(f"{ruler[c]:.0%}" for c in CATEGORIES)))
    return Table(("translator", "head", *CATEGORIES), tuple(rows), "Alignment error / exact translations (validation)")


def _lengths_table(lengths: Mapping[str, Mapping[int, float]]) -> Table:
    rows = tuple((str(n), *(f"{accuracy[n]:.2f}" for accuracy in lengths.values())) for n in range(1, MOST + 1))
    return Table(("dates", *lengths), rows, "Word accuracy of two small recurrent translators")


def _curves(lengths: Mapping[str, Mapping[int, float]]) -> Curves:
    lines = tuple((name, tuple((float(n), y) for n, y in accuracy.items())) for name, accuracy in lengths.items())
    return Curves("Word accuracy by length", lines, "dates per sequence", "word accuracy")
