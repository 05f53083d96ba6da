"""Each objective is learned: ten examples by heart. And each says what it should on a case worked by hand."""

import dataclasses
import math

import pytest
import torch

from peasy.errors import InvalidInput
from peasy.models import config as kinds
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training.chance import generator
from peasy.training.learner import CountingLearner, GradientLearner
from peasy.training.objective import (
    HIDDEN,
    Contrastive,
    Counting,
    MaskedToken,
    NextToken,
    SkipGram,
    SourceToTarget,
)  # fmt: skip
from peasy.training.optimizer import AdamW, Muon, Optimizer

SPECIAL = kinds.Special(padding=0, begin=3, end=(3,), start=2, mask=4, unknown=1)
VOCABULARY = 30


def model(name: str, **changes):
    small = {"d_model": 32} if "ngram" not in name else {}
    config = preset(name, vocabulary=VOCABULARY, **small | changes)
    return build(dataclasses.replace(config, special=SPECIAL), seed=4)


def ten(length: int = 8, seed: int = 1) -> torch.Tensor:
    return torch.randint(5, VOCABULARY, (10, length), generator=torch.Generator().manual_seed(seed))


def next_tokens() -> dict:
    ids = ten(9)
    ids[:, 0] = torch.arange(5, 15)  # each example can be told from the others by its first token
    return {"ids": ids[:, :-1], "targets": ids[:, 1:]}


def pairs() -> dict:
    target = torch.cat([torch.full((10, 1), 2), ten(6, seed=2), torch.full((10, 1), 3)], dim=1)
    real = torch.ones(10, 8, dtype=torch.bool)
    real[::2, -2:] = False
    source = ten(8, seed=3).masked_fill(~real, 0)
    return {"ids": target[:, :-1], "targets": target[:, 1:], "source": source, "source_real": real}


def learned(it, objective, batch, *, steps=60, lr=1e-2, muon=False) -> tuple[float, float]:
    """The mean loss before and after learning one batch by heart."""
    optimizer = Optimizer(it, Muon(rest=AdamW(lr=lr)) if muon else AdamW(lr=lr, decay=0.0))
    learner = GradientLearner(it, objective, optimizer, seed=0, clip=1.0)
    it.train()
    first = learner.learn([batch], 1, 1.0).loss
    for step in range(2, steps):
        learner.learn([batch], step, 1.0)
    it.eval()
    with torch.inference_mode():
        return first, float(objective.total(it, batch)) / objective.count(batch)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpt-tiny", {"stack": {"layers": 1}}),
        ("rnn-tiny", {}),
        ("cnn-tiny", {}),
        ("words-small", {"window": 8}),
    ],
)
def test_next_token_is_learned_by_heart(name, changes):
    first, last = learned(model(name, **changes), NextToken(), next_tokens(), steps=120, lr=2e-2, muon="gpt" in name)
    assert first > 2.5
    assert last < (0.9 if "words" in name else 0.1)  # a bag of words cannot always tell


def test_masked_tokens_are_learned_by_heart():
    batch = {"ids": ten(8)}
    asked = MaskedToken(share=0.3).prepare(batch, model("encoder-tiny").config, generator(1))
    first, last = learned(model("encoder-tiny"), MaskedToken(), asked)
    assert first > 2.5
    assert last < 0.2


@pytest.mark.parametrize("name", ["translator-tiny", "rnn-translator-tiny"])
def test_targets_are_learned_by_heart(name):
    first, last = learned(model(name), SourceToTarget(smoothing=0.05), pairs(), steps=90, lr=1e-2)
    assert first > 2.5
    assert last < 0.35


def test_sentences_find_their_partners():
    batch = {"source": ten(6, seed=5), "ids": ten(6, seed=6)}
    first, last = learned(model("encoder-tiny"), Contrastive(), batch, steps=50, lr=3e-3)
    assert first > 1
    assert last < 0.1


def test_neighbours_are_learned():
    ids = torch.arange(5, 15).repeat(2, 1)  # each word always has the same neighbours
    it = model("words-base", task="skip-gram", window=1)
    first, last = learned(it, SkipGram(window=1), {"ids": ids}, steps=120, lr=5e-2)
    assert first > 3
    assert last < 0.75  # ln 2 is the least: two neighbours, one guess


def test_counting_learns_by_heart():
    it = model("ngram-tiny")
    batch = next_tokens()
    learner = CountingLearner(it, Counting(), rows=10)
    losses = [learner.learn([batch], step, 1.0).loss for step in range(6)]
    assert losses[0] == pytest.approx(math.log(VOCABULARY), abs=1e-4)
    assert losses[-1] < losses[1] < losses[0]


def test_only_what_is_asked_counts():
    targets = torch.tensor([[5, HIDDEN, 7, HIDDEN]])
    batch = {"ids": torch.tensor([[6, 7, 8, 9]]), "targets": targets}
    it = model("gpt-tiny").eval()
    scores = it(batch["ids"]).log_softmax(-1)
    assert NextToken().count(batch) == 2
    by_hand = -(scores[0, 0, 5] + scores[0, 2, 7])
    torch.testing.assert_close(NextToken().total(it, batch), by_hand)


def test_smoothing_spreads_chance_only_while_learning():
    it, batch = model("translator-tiny"), pairs()
    asked = batch["targets"]
    scores = it.eval()(batch["ids"], source=batch["source"], source_real=batch["source_real"]).log_softmax(-1)
    right = -scores.gather(2, asked[:, :, None]).sum()
    torch.testing.assert_close(SourceToTarget(0.1).total(it, batch), right)
    smoothed = 0.9 * right - 0.1 * scores.mean(-1).sum()
    torch.testing.assert_close(SourceToTarget(0.1).total(it.train(), batch), smoothed)


def test_masking_depends_only_on_the_place():
    config, batch = model("encoder-tiny").config, {"ids": ten(40)}
    one, two, other = (MaskedToken().prepare(batch, config, generator(7, place)) for place in (3, 3, 4))
    assert torch.equal(one["ids"], two["ids"])
    assert not torch.equal(one["ids"], other["ids"])


def test_most_asked_tokens_are_covered_and_only_asked_ones_change():
    config, ids = model("encoder-tiny").config, ten(400)
    found = MaskedToken().prepare({"ids": ids}, config, generator(1))
    asked = found["targets"] != HIDDEN
    assert torch.equal(found["ids"][~asked], ids[~asked])
    assert torch.equal(found["targets"][asked], ids[asked])
    assert float(asked.float().mean()) == pytest.approx(0.15, abs=0.02)
    assert float((found["ids"][asked] == 4).float().mean()) == pytest.approx(0.8, abs=0.06)


def test_padding_is_never_asked_about():
    real = torch.zeros(10, 8, dtype=torch.bool)
    real[:, :3] = True
    found = MaskedToken(share=0.9).prepare({"ids": ten(), "real": real}, model("encoder-tiny").config, generator(2))
    assert not (found["targets"] != HIDDEN)[~real].any()


def test_texts_of_one_label_are_not_pushed_apart():
    it = model("encoder-tiny").eval()
    batch = {"source": ten(6, seed=5), "ids": ten(6, seed=6)}
    alike = Contrastive().total(it, batch | {"label": torch.zeros(10, dtype=torch.long)})
    assert float(alike.detach()) == pytest.approx(0.0, abs=1e-5)  # nobody is left to be told apart from
    apart = Contrastive().total(it, batch | {"label": torch.arange(10)})
    torch.testing.assert_close(apart, Contrastive().total(it, batch))


def test_neighbours_by_hand():
    it, ids = model("words-base", task="skip-gram", window=2), torch.tensor([[5, 6, 7]])
    chances = it(ids).log_softmax(-1)[0]
    near = [(0, 6), (1, 7), (1, 5), (2, 6), (0, 7), (2, 5)]
    assert SkipGram(2).count({"ids": ids}) == len(near)
    torch.testing.assert_close(SkipGram(2).total(it, {"ids": ids}), -sum(chances[at, word] for at, word in near))


def test_parts_of_a_batch_add_up_to_the_whole():
    """However a batch is cut, the step is the same: with padding, the mean of means would not be."""
    batch = pairs()
    batch["targets"] = torch.where(torch.arange(7) < torch.arange(10)[:, None] % 7 + 1, batch["targets"], HIDDEN)
    whole, cut = (model("translator-tiny", dropout=0.0) for _ in range(2))
    parts = [{name: array[i : i + 5] for name, array in batch.items()} for i in (0, 5)]
    one = GradientLearner(whole, SourceToTarget(), Optimizer(whole, AdamW()), seed=0).learn([batch], 1, 1.0)
    two = GradientLearner(cut, SourceToTarget(), Optimizer(cut, AdamW()), seed=0).learn(parts, 1, 1.0)
    assert one.loss == pytest.approx(two.loss, rel=1e-5)
    assert one.norm == pytest.approx(two.norm, rel=1e-4)


@pytest.mark.parametrize(
    ("objective", "name"), [(Contrastive(), "gpt-tiny"), (SkipGram(), "gpt-tiny")], ids=["contrastive", "skip-gram"]
)
def test_the_wrong_model_is_told_so(objective, name):
    with pytest.raises(InvalidInput):
        objective.total(model(name), {"ids": ten(), "source": ten()})


def test_counting_is_for_models_that_count():
    with pytest.raises(InvalidInput, match="n-gram"):
        Counting().observe(model("gpt-tiny"), {"ids": ten()})
