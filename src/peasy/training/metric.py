"""Metrics: how good a model is, as sums that grow batch by batch, so that no corpus is too large."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peasy.errors import InvalidInput


@dataclass
class Tally:
    """What predicted tokens have cost so far: `nats` in all, how many tokens, how many of them were guessed right.

    `bytes` is how long the predicted text is in UTF-8, where that is known.

    >>> Tally(nats=2.0, tokens=2, right=1, bytes=4).perplexity
    2.718281828459045
    """

    nats: float = 0.0
    tokens: int = 0
    right: int = 0
    bytes: int = 0

    @property
    def loss(self) -> float:
        """Nats for each token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """Between how many equally likely tokens the model still hesitates."""
        return math.exp(min(self.loss, 700.0))

    @property
    def accuracy(self) -> float:
        """The share of tokens that the model would have chosen."""
        return self.right / self.tokens

    @property
    def bits_per_byte(self) -> float | None:
        """Bits for each byte of text: the one measure that models with different tokenizers share."""
        return self.nats / math.log(2) / self.bytes if self.bytes else None


@dataclass
class Right:
    """How many answers were right, in all and by category."""

    asked: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)

    def add(self, category: str, right: bool) -> None:
        """Count one answer."""
        self.asked[category] += 1
        self.right[category] += right

    @property
    def count(self) -> int:
        """How many were asked."""
        return self.asked.total()

    @property
    def share(self) -> float:
        """The share of all that were right."""
        return self.right.total() / self.count

    def by_category(self) -> tuple[tuple[str, int, int], ...]:
        """Category, right, asked; nothing where there is only one."""
        return tuple((name, self.right[name], self.asked[name]) for name in sorted(self.asked)) if self.asked else ()


class Translations:
    """BLEU and chrF of sacreBLEU over a corpus that is never held in memory: only the counts of n-grams add up."""

    def __init__(self) -> None:
        from sacrebleu.metrics import BLEU, CHRF

        self._metrics: tuple[Any, ...] = (BLEU(), CHRF())
        self._sums: list[list[float]] = [[], []]
        self.count = 0

    def add(self, written: Sequence[str], wanted: Sequence[str]) -> None:
        """Count some translations beside their references."""
        self.count += len(written)
        for place, metric in enumerate(self._metrics):
            found = metric._extract_corpus_statistics(list(written), [list(wanted)])
            held = self._sums[place]
            self._sums[place] = np.sum([*found, *([held] if held else [])], axis=0).tolist()

    def scores(self) -> tuple[tuple[str, float, str], ...]:
        """Name, score and signature of each metric."""
        if not self.count:
            raise InvalidInput("There is nothing to score.")
        pairs = zip(self._metrics, self._sums, strict=True)
        found = [(metric, metric._aggregate_and_compute([sums])) for metric, sums in pairs]
        return tuple((score.name, float(score.score), str(metric.get_signature())) for metric, score in found)


def spearman(left: ArrayLike, right: ArrayLike) -> float:
    """How well two lists agree about the order of things: 1 the same order, -1 the opposite one.

    >>> spearman([1, 2, 3], [10, 20, 15])
    0.5
    """
    first, second = _ranks(left), _ranks(right)
    if len(first) != len(second) or len(first) < 2:
        raise InvalidInput(f"{len(first)} and {len(second)} numbers cannot be ranked against each other.")
    first, second = first - first.mean(), second - second.mean()
    scale = math.sqrt(float(first @ first) * float(second @ second))
    if scale == 0:
        raise InvalidInput("All scores are equal: there is no order to agree about.")
    return float(first @ second) / scale


def _ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Places in order; equal values share the mean of their places."""
    array = np.asarray(values, dtype=np.float64)
    _, which, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[which]
