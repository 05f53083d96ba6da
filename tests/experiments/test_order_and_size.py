"""Attention aligns reordered words, one fixed vector fails on long sequences; other numbers change the verdict."""

import pytest

from peasy.datasets import TextPair
from peasy.experiments import order_and_size as order
from peasy.models.build import build
from peasy.models.preset import preset


def test_built_in_translators_align():
    numbers = order.run(pairs=4, steps=0).numbers
    assert set(numbers["translators"]) == {"locales-fr", "locales-fr-2015"}
    for translator in numbers["translators"].values():
        assert translator["error"]["date"] < numbers["diagonal_baseline"]["date"]
        assert min(translator["exact"].values()) >= 0.75


def aligned(error):
    values = dict.fromkeys(order.CATEGORIES, error)
    return order.TranslatorAlignment("t", (0, 0), values, dict.fromkeys(order.CATEGORIES, 0.9))


LONG = {"attention": {1: 1.0, 5: 0.95}, "one fixed vector": {1: 1.0, 5: 0.4}}


def concluded(error=0.05, lengths=LONG):
    return order.conclude(
        [aligned(error)],
        dict.fromkeys(order.CATEGORIES, 0.5),
        (0.6, 0.4),
        (),
        {k: _all(v) for k, v in lengths.items()},
        0,
    )


def _all(ends):
    return {count: ends[1] + (ends[5] - ends[1]) * (count - 1) / 4 for count in range(1, 6)}


def test_verdict_follows_the_numbers():
    assert concluded().holds
    assert "does NOT find" in concluded(error=0.45).verdict
    exchanged = {"attention": LONG["one fixed vector"], "one fixed vector": LONG["attention"]}
    assert "does not hurt more" in concluded(lengths=exchanged).verdict


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
