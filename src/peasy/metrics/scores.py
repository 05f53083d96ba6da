"""Metrics: loss, perplexity, accuracy, BLEU and chrF from running totals; Spearman rank correlation of two lists."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peasy.errors import InvalidInput


@dataclass
class TokenPredictionStats:
    """Accumulated prediction loss: total `nats`, number of tokens, and how many were predicted correctly.

    `bytes` is the length of the predicted text in UTF-8, if known.

    >>> TokenPredictionStats(nats=2.0, tokens=2, correct=1, bytes=4).perplexity
    2.718281828459045
    """

    nats: float = 0.0
    tokens: int = 0
    correct: int = 0
    bytes: int = 0

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """Perplexity: exp(loss)."""
        return math.exp(min(self.loss, 700.0))

    @property
    def accuracy(self) -> float:
        """Fraction of tokens that were the model's first choice."""
        return self.correct / self.tokens

    @property
    def bits_per_byte(self) -> float | None:
        """Bits per byte of text: comparable between models with different tokenizers."""
        return self.nats / math.log(2) / self.bytes if self.bytes else None


@dataclass
class AccuracyCounter:
    """Accuracy, overall and by category."""

    counts: Counter[str] = field(default_factory=Counter)
    correct: Counter[str] = field(default_factory=Counter)

    def add(self, category: str, correct: bool) -> None:
        """Count one answer."""
        self.counts[category] += 1
        self.correct[category] += correct

    @property
    def count(self) -> int:
        """Number of answers."""
        return self.counts.total()

    @property
    def accuracy(self) -> float:
        """Accuracy over all categories."""
        return self.correct.total() / self.count

    def by_category(self) -> tuple[tuple[str, int, int], ...]:
        """Return (category, correct, total) rows."""
        return tuple((name, self.correct[name], self.counts[name]) for name in sorted(self.counts))


class TranslationMetrics:
    """Corpus BLEU and chrF (sacreBLEU), accumulated from n-gram counts without storing the texts."""

    def __init__(self) -> None:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        self._metrics = (BLEU(), CHRF())
        self._sums: list[list[float]] = [[], []]
        self.count = 0

    def add(self, hypotheses: Sequence[str], references: Sequence[str]) -> None:
        """Add some translations with their references."""
        self.count += len(hypotheses)
        for index, metric in enumerate(self._metrics):
            statistics = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
            previous = self._sums[index]
            self._sums[index] = np.sum([*statistics, *([previous] if previous else [])], axis=0).tolist()

    def scores(self) -> tuple[tuple[str, float, str], ...]:
        """Return name, score and signature of each metric."""
        if not self.count:
            raise InvalidInput("There are no translations to score.")
        pairs = zip(self._metrics, self._sums, strict=True)
        results = [(metric, metric._aggregate_and_compute([sums])) for metric, sums in pairs]
        return tuple((score.name, float(score.score), str(metric.get_signature())) for metric, score in results)


def spearman(left: ArrayLike, right: ArrayLike) -> float:
    """Return Spearman's rank correlation: 1 for the same order, -1 for the opposite one.

    >>> spearman([1, 2, 3], [10, 20, 15])
    0.5
    """
    left_ranks, right_ranks = _ranks(left), _ranks(right)
    if len(left_ranks) != len(right_ranks) or len(left_ranks) < 2:
        raise InvalidInput(
            f"Rank correlation needs two lists of equal length, at least 2; these have {len(left_ranks)} and "
            f"{len(right_ranks)}."
        )
    left_ranks, right_ranks = left_ranks - left_ranks.mean(), right_ranks - right_ranks.mean()
    scale = math.sqrt(float(left_ranks @ left_ranks) * float(right_ranks @ right_ranks))
    if scale == 0:
        raise InvalidInput("Rank correlation is undefined: all scores are equal.")
    return float(left_ranks @ right_ranks) / scale


def _ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Return ranks; ties share the mean of their ranks."""
    array = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]
