"""Metrics: loss, perplexity, accuracy, BLEU and chrF from running totals; Spearman rank correlation of two lists."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peasy.errors import InvalidInput
from peasy.parameters import Record


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
    """Corpus BLEU and chrF (sacreBLEU) of translations that come in parts."""

    def __init__(self) -> None:
        self._hypotheses: list[str] = []
        self._references: list[str] = []

    @property
    def count(self) -> int:
        """Number of translations."""
        return len(self._hypotheses)

    def add(self, hypotheses: Sequence[str], references: Sequence[str]) -> None:
        """Add some translations with their references."""
        self._hypotheses += hypotheses
        self._references += references

    def scores(self) -> tuple[tuple[str, float, str], ...]:
        """Return name, score and signature of each metric."""
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        if not self.count:
            raise InvalidInput("There are no translations to score.")
        metrics = (BLEU(), CHRF())
        results = [(metric, metric.corpus_score(self._hypotheses, [self._references])) for metric in metrics]
        return tuple((score.name, float(score.score), str(metric.get_signature())) for metric, score in results)


class AlignmentErrors(Record):
    """Predicted and gold word links: precision, recall and alignment error rate (AER); counts can be added.

    >>> first = AlignmentErrors.of({(0, 0), (1, 2)}, {(0, 0), (1, 1)})
    >>> first.precision, first.recall, (first + first).aer
    (0.5, 0.5, 0.5)
    """

    num_predicted: int
    num_gold: int
    num_correct: int

    @classmethod
    def of(cls, predicted: Collection[tuple[int, int]], gold: Collection[tuple[int, int]]) -> "AlignmentErrors":
        """Count the links that are in both."""
        return cls(len(predicted), len(gold), len(set(predicted) & set(gold)))

    def __add__(self, other: "AlignmentErrors") -> "AlignmentErrors":
        return AlignmentErrors(*(vars(self)[name] + count for name, count in vars(other).items()))

    @property
    def precision(self) -> float:
        """Share of the predicted links that are gold links."""
        return self.num_correct / self.num_predicted if self.num_predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the gold links that were predicted."""
        return self.num_correct / self.num_gold if self.num_gold else 0.0

    @property
    def aer(self) -> float:
        """1 - 2 · correct / (predicted + gold): 0 if both are the same."""
        total = self.num_predicted + self.num_gold
        return 1 - 2 * self.num_correct / total if total else 0.0

    def summary(self) -> str:
        """Describe the three rates in one sentence."""
        counts = f"{self.num_correct} of {self.num_predicted} predicted and {self.num_gold} gold links agree"
        return f"{counts}: precision {self.precision:.2f}, recall {self.recall:.2f}, AER {self.aer:.2f}."


def spearman(left: ArrayLike, right: ArrayLike) -> float:
    """Return Spearman's rank correlation: 1 for the same order, -1 for the opposite one.

    >>> spearman([1, 2, 3], [10, 20, 15])
    0.5
    """
    left_ranks, right_ranks = _ranks(left), _ranks(right)
    if len(left_ranks) != len(right_ranks) or len(left_ranks) < 2:
        lengths = f"{len(left_ranks)} and {len(right_ranks)}"
        raise InvalidInput(f"Rank correlation needs two lists of equal length, at least 2; these have {lengths}.")
    left_ranks, right_ranks = left_ranks - left_ranks.mean(), right_ranks - right_ranks.mean()
    scale = math.sqrt(float(left_ranks @ left_ranks) * float(right_ranks @ right_ranks))
    if scale == 0:
        raise InvalidInput("Rank correlation is undefined: all scores are equal.")
    return float(left_ranks @ right_ranks) / scale


def _ranks(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]
