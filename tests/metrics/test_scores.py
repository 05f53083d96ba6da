"""Metrics compared with sacreBLEU's corpus score, scipy's Spearman, and manual sums."""

import math
import random

import pytest
from scipy.stats import spearmanr

from peasy.errors import InvalidInput
from peasy.metrics.scores import AccuracyCounter, TokenPredictionStats, TranslationMetrics, spearman

WORDS = ["le", "chat", "dort", "sur", "la", "table", "et", "le", "chien", "mange", "une", "pomme", "rouge"]


def test_token_stats():
    tally = TokenPredictionStats(nats=6 * math.log(2), tokens=3, correct=2, bytes=6)
    assert tally.loss == pytest.approx(2 * math.log(2))
    assert tally.perplexity == pytest.approx(4)
    assert tally.bits_per_byte == pytest.approx(1)
    assert tally.accuracy == pytest.approx(2 / 3)
    assert TokenPredictionStats(nats=1, tokens=1).bits_per_byte is None


def test_streamed_bleu_equals_corpus_bleu():
    from sacrebleu.metrics import BLEU, CHRF

    rng = random.Random(1)
    references = [" ".join(rng.choices(WORDS, k=8)) + "." for _ in range(40)]
    hypotheses = [" ".join(w if rng.random() < 0.8 else "un" for w in line.split()) for line in references]
    streamed = TranslationMetrics()
    for start in range(0, 40, 7):
        streamed.add(hypotheses[start : start + 7], references[start : start + 7])
    bleu, chrf = BLEU(), CHRF()
    expected = [m.corpus_score(hypotheses, [references]).score for m in (bleu, chrf)]
    assert [score for _, score, _ in streamed.scores()] == pytest.approx(expected, abs=1e-9)
    assert [signature for _, _, signature in streamed.scores()] == [str(m.get_signature()) for m in (bleu, chrf)]
    assert 10 < expected[0] < 95


def test_empty_corpus_cannot_be_scored():
    with pytest.raises(InvalidInput):
        TranslationMetrics().scores()


@pytest.mark.parametrize("seed", range(3))
def test_spearman_matches_scipy(seed):
    rng = random.Random(seed)
    left, right = [rng.randint(0, 8) for _ in range(30)], [rng.random() for _ in range(30)]
    assert spearman(left, right) == pytest.approx(spearmanr(left, right).statistic, abs=1e-12)


def test_constant_scores_have_no_rank_correlation():
    with pytest.raises(InvalidInput, match="equal"):
        spearman([1, 1, 1], [1, 2, 3])


def test_accuracy_by_category():
    right = AccuracyCounter()
    for category, good in (("date", True), ("date", False), ("unit", True)):
        right.add(category, good)
    assert right.accuracy == pytest.approx(2 / 3)
    assert right.by_category() == (("date", 1, 2), ("unit", 1, 1))
