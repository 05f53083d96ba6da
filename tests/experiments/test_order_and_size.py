"""Attention aligns reordered words, one fixed vector fails on long sequences; other numbers change the verdict."""

import pytest

from peasy.commands.load import load
from peasy.datasets import TextPair
from peasy.experiments import order_and_size as order
from peasy.experiments.models import untrained
from peasy.experiments.statistics import Outcome
from peasy.models.build import build
from peasy.models.preset import preset


def test_built_in_translators_align():
    result = order.run(pairs=4, steps=0)
    numbers = result.numbers
    assert set(numbers["translators"]) == {"locales-fr", "locales-fr-2015"}
    assert min(min(by["exact"].values()) for by in numbers["translators"].values()) >= 0.75
    assert result.comparisons[0].outcome is Outcome.SUPPORTED, result.verdict


def concluded(error=0.05, attention=0.95, fixed=0.4):
    aligned = order.TranslatorAlignment("t", (0, 0), ("date", "unit", "money") * 3, (error,) * 9, (True,) * 9)
    lengths = {
        name: {count: [1.0 if count == 1 else end] * 8 for count in range(1, 6)}
        for name, end in (("attention", attention), ("one fixed vector", fixed))
    }
    return order.conclude([aligned], [0.5] * 9, (0.6, 0.4), (), lengths, 0)


def test_verdict_follows_the_numbers():
    assert concluded().outcome is Outcome.SUPPORTED
    assert "does NOT find" in concluded(error=0.6).verdict
    assert "does not hurt more" in concluded(attention=0.4, fixed=0.95).verdict
    assert concluded(error=0.6).outcome is Outcome.CONDITIONS
    assert concluded(error=0.6, attention=0.4, fixed=0.4).outcome is Outcome.NOT_SUPPORTED


def test_untrained_translator_changes_verdict():
    fresh = [untrained(load(name), 3) for name in ("locales-fr", "locales-fr-2015")]
    result = order.run(model=fresh[0], rnn_model=fresh[1], pairs=4, steps=0)
    assert result.outcome is Outcome.NOT_SUPPORTED, result.verdict


def test_diagonal_baseline_errs_on_crossing_alignments():
    straight = TextPair("a b c", "x y z", "date", ((0, 0), (1, 1), (2, 2)))
    crossed = TextPair("a b c", "x y z", "date", ((0, 2), (1, 1), (2, 0)))
    assert order.diagonal_error([straight]) == 0
    assert order.diagonal_error([crossed]) == pytest.approx(2 / 3)
    assert order.reordering([straight, crossed]) == (0.5, 0.0)


def test_short_training_of_the_control(tmp_path):
    right = order.train_on_dates("one fixed vector", False, 0, 4, order.ignore_status)
    assert list(right) == [1, 2, 3, 4, 5]


def test_without_attention_only_the_state_depends_on_the_source():
    """With a zero bridge every initial state is equal, so that without attention all sources give equal logits."""
    import torch

    ids = torch.tensor([[1, 2, 3]])
    sources = torch.tensor([[5, 6, 7]]), torch.tensor([[8, 9, 10]])
    for use_attention in (True, False):
        model = build(preset("rnn-translator-tiny", vocab_size=16, d_model=8, use_attention=use_attention), seed=1)
        torch.nn.init.zeros_(model.bridge.weight)
        logits = [model(ids, source=source) for source in sources]
        assert torch.equal(*logits) is not use_attention


def test_validation_dates_are_not_in_training():
    corpus = order.DatesCorpus(0, size=300, held_out=50)
    held = {pair.source for pair in corpus.documents("valid") if pair.category == "1"}
    training = " | ".join(pair.source for pair in corpus.documents("train"))
    assert held
    assert not any(date in training for date in held)
