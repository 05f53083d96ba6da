"""`order-and-size`: translations whose words come in another order and number, and a translator that cannot look."""

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

QUESTION = "The words of a translation come in another order and number. Does attention find which belongs to which?"
SHOWN = ("Sunday, November 15, 2026", "European Union")
CATEGORIES = ("date", "unit", "money")
WAYS = {"attention": True, "one fixed vector": False}
MOST = 5
"""The translators of the control learn rows of one to so many dates."""
SMALL: dict[str, Any] = {
    "tokenizer": {"by": "words", "vocabulary": 512},
    "optimizer": {"kind": "adamw", "lr": 6e-3},
    "batch": 64,
}


@dataclass
class Aligned:
    """How one translator did: the head that aligns best on other pairs, and by category the shares of right answers.

    `error`: known words whose strongest link goes elsewhere; `exact`: translations that are right to the letter.
    """

    name: str
    head: Head
    error: dict[str, float] = field(default_factory=dict)
    exact: dict[str, float] = field(default_factory=dict)

    def mean(self, what: str) -> float:
        """Over the categories."""
        return float(np.mean(list(getattr(self, what).values())))


def run(
    seed: int = 0, hear: Hear = unheard, model: Subject = "locales-fr", older: Subject = "locales-fr-2015",
    pairs: int = 24, steps: int = 400,
) -> Finding:  # fmt: skip
    """Align `pairs` of each category by both translators; then train two small ones, with attention and without."""
    need("torch")
    choose, judge = draw_pairs(pairs, seed)
    translators = [open_subject(each) for each in (model, older)]
    found = []
    for loaded in translators:
        hear(f"{loaded.name}: aligning {len(choose) + len(judge)} pairs ...")
        found.append(judge_translator(loaded, choose, judge))
    pictures = [picture(loaded, one, text) for text in SHOWN for loaded, one in zip(translators, found, strict=True)]
    lengths = {name: learn_dates(name, attends, seed, steps, hear) for name, attends in WAYS.items()} if steps else {}
    ruler = {each: diagonal([pair for pair in judge if pair.category == each]) for each in CATEGORIES}
    return conclude(found, ruler, crossing(judge), pictures, lengths, seed)


def draw_pairs(count: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Held-out pairs, some to choose a head by and `count` of each category to judge it by."""
    held = [pair for pair in open_corpus("locales:en-fr").documents("valid") if isinstance(pair, Pair)]
    Random(seed).shuffle(held)
    choose, judge = [], []
    for category in CATEGORIES:
        some = [pair for pair in held if pair.category == category and pair.alignment]
        judge += some[:count]
        choose += some[count : count + max(count // 2, 1)]
    return choose, judge


def judge_translator(loaded: "LoadedModel", choose: Sequence[Pair], judge: Sequence[Pair]) -> Aligned:
    """The best head is chosen on some pairs and judged on others."""
    from peasy.workbench.translate import translate

    best = best_head(loaded, choose)
    result = Aligned(loaded.name, best)
    for category in CATEGORIES:
        some = [pair for pair in judge if pair.category == category]
        said = translate(loaded, [pair.source for pair in some]).texts
        result.error[category] = 1 - float(np.mean([head_scores(loaded, pair)[best] for pair in some]))
        result.exact[category] = float(np.mean([a == p.target for a, p in zip(said, some, strict=True)]))
    return result


def diagonal(pairs: Sequence[Pair]) -> float:
    """The error of a ruler: each word from the one at its own place, stretched to the other length."""
    wrong = []
    for pair in pairs:
        ours, theirs = len(split_words(pair.source)), len(split_words(pair.target))
        known: dict[int, set[int]] = {}
        for source, target in pair.alignment:
            known.setdefault(target, set()).add(source)
        wrong += [round(t * (ours - 1) / max(theirs - 1, 1)) not in sources for t, sources in known.items()]
    return float(np.mean(wrong))


def crossing(pairs: Sequence[Pair]) -> tuple[float, float]:
    """The share of pairs in which words change places, and of those in which their number changes."""
    crossed = [any(a < c and b > d for a, b in p.alignment for c, d in p.alignment) for p in pairs]
    resized = [len(split_words(pair.source)) != len(split_words(pair.target)) for pair in pairs]
    return float(np.mean(crossed)), float(np.mean(resized))


def picture(loaded: "LoadedModel", found: Aligned, text: str) -> Part:
    """What the translator writes, with ribbons from where it looked."""
    layer, head = found.head
    drawn = ribbons(loaded.look(text).alignment(layer=layer, head=head).record)
    return replace(drawn, title=f"{loaded.name}, head {name_head(found.head)}")


class Dates(Corpus):
    """Rows of one to `MOST` dates, in English and in French: every word is known, only their number grows."""

    kind, name, says, licence = "pairs", "rows of dates", "one to five dates in a row, en-fr", "Unicode-3.0 (CLDR)"

    def __init__(self, seed: int, size: int, held_out: int = 400) -> None:
        super().__init__()
        self.seed, self.sizes = seed, {"train": size, "valid": held_out}

    def read(self, split: str) -> Iterator[Pair]:
        """The rows of a split; dates that are held out are in no row of the other."""
        rng = Random(f"dates/{self.seed}/{split}")
        for _ in range(self.sizes[split]):
            yield self.row(rng, rng.randint(1, MOST), split)

    def row(self, rng: Random, count: int, split: str) -> Pair:
        """So many dates."""
        days = [_day(rng, split) for _ in range(count)]
        sides = [
            " ".join(phrase.plain(phrase.say_date(day, "long", Locale(each))).replace(",", "") for day in days)
            for each in ("en", "fr")
        ]
        return Pair(sides[0], sides[1], str(count))


def _day(rng: Random, split: str) -> date:
    while True:
        day = date(rng.randint(1950, 2049), rng.randint(1, 12), rng.randint(1, 28))
        if is_held_out(day.isoformat()) == (split == "valid"):
            return day


def learn_dates(name: str, attends: bool, seed: int, steps: int, hear: Hear) -> dict[int, float]:
    """Train a small recurrent translator; then the share of right words by the number of dates."""
    from peasy.workbench.experiments.learning import learn
    from peasy.workbench.measure import translate

    corpus = Dates(seed, size=steps * SMALL["batch"])
    settings = {**SMALL, "model": {"attends": attends, "d_model": 96}}
    learned = learn("rnn-translator", corpus, name, hear, steps=steps, seed=seed, settings=settings)
    rng, right = Random(seed), {}
    for count in range(1, MOST + 1):
        rows = [corpus.row(rng, count, "valid") for _ in range(40)]
        said = translate(learned.model, [row.source for row in rows])
        right[count] = float(np.mean([right_words(a, b.target) for a, b in zip(said, rows, strict=True)]))
    return right


def right_words(said: str, wanted: str) -> float:
    """The share of wanted words that stand at their place.

    >>> right_words("5 mai 1999", "5 mars 1999")
    0.6666666666666666
    """
    words, theirs = wanted.split(), said.split()
    return sum(ours == other for ours, other in zip(words, theirs, strict=False)) / len(words)


def conclude(
    found: Sequence[Aligned],
    ruler: Mapping[str, float],
    mismatch: tuple[float, float],
    pictures: Sequence[Part],
    lengths: Mapping[str, Mapping[int, float]],
    seed: int,
) -> Finding:
    """Alignment must beat a ruler by far, and the translator that cannot look must lose more with length."""
    straight = float(np.mean(list(ruler.values())))
    aligned = all(each.mean("error") < straight / 2 for each in found)
    told = "; ".join(
        f"{each.name} errs in {each.mean('error'):.0%} of known words and translates {each.mean('exact'):.0%} exactly"
        for each in found
    )
    verdict = (
        f"In {mismatch[0]:.0%} of held-out pairs words change places, in {mismatch[1]:.0%} their number changes. "
        f"{told}; a ruler errs in {straight:.0%}. Attention {'finds' if aligned else 'does NOT find'} the order."
    )
    parts: list[Part] = [_table(found, ruler), *pictures]
    holds = aligned
    if lengths:
        lost = {name: right[min(right)] - right[max(right)] for name, right in lengths.items()}
        worse = lost["one fixed vector"] > lost["attention"] + 0.1
        ends = {name: right[max(right)] for name, right in lengths.items()}
        holds = holds and worse
        verdict += (
            f" From 1 to {MOST} dates in a row, the share of right words falls by {lost['one fixed vector']:.2f} to "
            f"{ends['one fixed vector']:.2f} with one fixed vector and by {lost['attention']:.2f} to "
            f"{ends['attention']:.2f} with attention: without looking back, length "
            f"{'hurts more' if worse else 'does not hurt more'}."
        )
        parts += [_lengths_table(lengths), _curves(lengths)]
    caveat = (
        "Alignment is judged by the head that aligns best on other pairs; other heads do other things, and a word may "
        "be read off a neighbour into which the encoder has mixed it: an answer can be right and its ribbon not. The "
        "words that belong together are known because the pairs were generated. The control is small and trained for "
        "a minute: larger fixed vectors hold more, and end somewhere too."
    )
    numbers = {
        "translators": {e.name: {"head": name_head(e.head), "error": e.error, "exact": e.exact} for e in found},
        "ruler": dict(ruler),
        "changes": {"order": mismatch[0], "number": mismatch[1]},
        "lengths": {name: dict(right) for name, right in lengths.items()},
    }
    return Finding("order-and-size", QUESTION, tuple(parts), verdict, holds, caveat, numbers, seed)


def _table(found: Sequence[Aligned], ruler: Mapping[str, float]) -> Table:
    rows = [
        (each.name, name_head(each.head), *(f"{each.error[c]:.0%} / {each.exact[c]:.0%}" for c in CATEGORIES))
        for each in found
    ]
    rows.append(("a ruler", "", *(f"{ruler[c]:.0%}" for c in CATEGORIES)))
    return Table(("translator", "head", *CATEGORIES), tuple(rows), "Alignment error / exact translations, held out")


def _lengths_table(lengths: Mapping[str, Mapping[int, float]]) -> Table:
    rows = tuple((str(n), *(f"{right[n]:.2f}" for right in lengths.values())) for n in range(1, MOST + 1))
    return Table(("dates in a row", *lengths), rows, "Right words, by two small recurrent translators")


def _curves(lengths: Mapping[str, Mapping[int, float]]) -> Curves:
    lines = tuple((name, tuple((float(n), share) for n, share in right.items())) for name, right in lengths.items())
    return Curves("Longer and longer", lines, "dates in a row", "right words")
