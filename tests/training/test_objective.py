"""Objectives: each can be overfitted on ten examples, and equals a manual calculation."""

import dataclasses
import math

import pytest
import torch

from peasy.errors import InvalidInput
from peasy.models import config as kinds
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training.learner import CountingLearner, GradientLearner, seeded_generator
from peasy.training.objective import (
    IGNORE_INDEX,
    Contrastive,
    MaskedToken,
    NextToken,
    NGramCounting,
    Seq2Seq,
    SkipGram,
)  # fmt: skip
from peasy.training.optimizer import AdamWConfig, MuonConfig, Optimizer

SPECIAL = kinds.SpecialTokensConfig(pad=0, bos=3, eos=(3,), decoder_start=2, mask=4, unk=1)
VOCABULARY = 30


def model(name: str, **changes):
    small = {"d_model": 32} if "ngram" not in name else {}
    config = preset(name, vocab_size=VOCABULARY, **small | changes)
    return build(dataclasses.replace(config, special_tokens=SPECIAL), seed=4)


def ten(length: int = 8, seed: int = 1) -> torch.Tensor:
    return torch.randint(5, VOCABULARY, (10, length), generator=torch.Generator().manual_seed(seed))


def next_tokens() -> dict:
    ids = ten(9)
    ids[:, 0] = torch.arange(5, 15)  # the first token identifies each example
    return {"ids": ids[:, :-1], "targets": ids[:, 1:]}


def pairs() -> dict:
    target = torch.cat([torch.full((10, 1), 2), ten(6, seed=2), torch.full((10, 1), 3)], dim=1)
    padding_mask = torch.ones(10, 8, dtype=torch.bool)
    padding_mask[::2, -2:] = False
    source = ten(8, seed=3).masked_fill(~padding_mask, 0)
    return {"ids": target[:, :-1], "targets": target[:, 1:], "source": source, "source_padding_mask": padding_mask}


def overfit(it, objective, batch, *, steps=60, lr=1e-2, muon=False) -> tuple[float, float]:
    """Mean loss before and after overfitting one batch."""
    optimizer = Optimizer(it, MuonConfig(adamw=AdamWConfig(lr=lr)) if muon else AdamWConfig(lr=lr, weight_decay=0.0))
    learner = GradientLearner(it, objective, optimizer, seed=0, grad_clip=1.0)
    it.train()
    first = learner.step([batch], 1, 1.0).loss
    for step in range(2, steps):
        learner.step([batch], step, 1.0)
    it.eval()
    with torch.inference_mode():
        return first, float(objective.loss_sum(it, batch)) / objective.num_targets(batch)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpt-tiny", {"stack": {"num_layers": 1}}),
        ("rnn-tiny", {}),
        ("cnn-tiny", {}),
        ("words-small", {"window": 8}),
    ],
)
def test_next_token_overfits(name, changes):
    first, last = overfit(model(name, **changes), NextToken(), next_tokens(), steps=120, lr=2e-2, muon="gpt" in name)
    assert first > 2.5
    assert last < (0.9 if "words" in name else 0.1)  # a bag of words is ambiguous


def test_masked_token_overfits():
    batch = {"ids": ten(8)}
    masked = MaskedToken(mask_prob=0.3).prepare(batch, model("encoder-tiny").config, seeded_generator(1))
    first, last = overfit(model("encoder-tiny"), MaskedToken(), masked)
    assert first > 2.5
    assert last < 0.2


@pytest.mark.parametrize("name", ["translator-tiny", "rnn-translator-tiny"])
def test_seq2seq_overfits(name):
    first, last = overfit(model(name), Seq2Seq(label_smoothing=0.05), pairs(), steps=90, lr=1e-2)
    assert first > 2.5
    assert last < 0.35


def test_contrastive_overfits():
    batch = {"source": ten(6, seed=5), "ids": ten(6, seed=6)}
    first, last = overfit(model("encoder-tiny"), Contrastive(), batch, steps=50, lr=3e-3)
    assert first > 1
    assert last < 0.1


def test_skip_gram_overfits():
    ids = torch.arange(5, 15).repeat(2, 1)  # fixed neighbours for each word
    it = model("words-base", task="skip-gram", window=1)
    first, last = overfit(it, SkipGram(window=1), {"ids": ids}, steps=120, lr=5e-2)
    assert first > 3
    assert last < 0.75  # the minimum is ln 2: two neighbours


def test_counting_overfits():
    it = model("ngram-tiny")
    batch = next_tokens()
    learner = CountingLearner(it, NGramCounting(), loss_rows=10)
    losses = [learner.step([batch], step, 1.0).loss for step in range(6)]
    assert losses[0] == pytest.approx(math.log(VOCABULARY), abs=1e-4)
    assert losses[-1] < losses[1] < losses[0]


def test_ignored_targets_do_not_count():
    targets = torch.tensor([[5, IGNORE_INDEX, 7, IGNORE_INDEX]])
    batch = {"ids": torch.tensor([[6, 7, 8, 9]]), "targets": targets}
    it = model("gpt-tiny").eval()
    scores = it(batch["ids"]).log_softmax(-1)
    assert NextToken().num_targets(batch) == 2
    by_hand = -(scores[0, 0, 5] + scores[0, 2, 7])
    torch.testing.assert_close(NextToken().loss_sum(it, batch), by_hand)


def test_label_smoothing_applies_only_in_training():
    it, batch = model("translator-tiny"), pairs()
    logits = it.eval()(batch["ids"], source=batch["source"], source_padding_mask=batch["source_padding_mask"])
    log_probs = logits.log_softmax(-1)
    right = -log_probs.gather(2, batch["targets"][:, :, None]).sum()
    torch.testing.assert_close(Seq2Seq(0.1).loss_sum(it, batch), right)
    smoothed = 0.9 * right - 0.1 * log_probs.mean(-1).sum()
    torch.testing.assert_close(Seq2Seq(0.1).loss_sum(it.train(), batch), smoothed)


def test_masking_depends_only_on_position():
    config, batch = model("encoder-tiny").config, {"ids": ten(40)}
    one, two, other = (MaskedToken().prepare(batch, config, seeded_generator(7, place)) for place in (3, 3, 4))
    assert torch.equal(one["ids"], two["ids"])
    assert not torch.equal(one["ids"], other["ids"])


def test_masking_changes_only_targets():
    config, ids = model("encoder-tiny").config, ten(400)
    masked_batch = MaskedToken().prepare({"ids": ids}, config, seeded_generator(1))
    masked = masked_batch["targets"] != IGNORE_INDEX
    assert torch.equal(masked_batch["ids"][~masked], ids[~masked])
    assert torch.equal(masked_batch["targets"][masked], ids[masked])
    assert float(masked.float().mean()) == pytest.approx(0.15, abs=0.02)
    assert float((masked_batch["ids"][masked] == 4).float().mean()) == pytest.approx(0.8, abs=0.06)


def test_padding_is_never_masked():
    padding_mask = torch.zeros(10, 8, dtype=torch.bool)
    padding_mask[:, :3] = True
    masked_batch = MaskedToken(mask_prob=0.9).prepare(
        {"ids": ten(), "padding_mask": padding_mask}, model("encoder-tiny").config, seeded_generator(2)
    )
    assert not (masked_batch["targets"] != IGNORE_INDEX)[~padding_mask].any()


def test_same_label_is_no_negative():
    it = model("encoder-tiny").eval()
    batch = {"source": ten(6, seed=5), "ids": ten(6, seed=6)}
    alike = Contrastive().loss_sum(it, batch | {"label": torch.zeros(10, dtype=torch.long)})
    assert float(alike.detach()) == pytest.approx(0.0, abs=1e-5)  # no negatives are left
    apart = Contrastive().loss_sum(it, batch | {"label": torch.arange(10)})
    torch.testing.assert_close(apart, Contrastive().loss_sum(it, batch))


def test_skip_gram_matches_manual_calculation():
    it, ids = model("words-base", task="skip-gram", window=2), torch.tensor([[5, 6, 7]])
    log_probs = it(ids).log_softmax(-1)[0]
    near = [(0, 6), (1, 7), (1, 5), (2, 6), (0, 7), (2, 5)]
    assert SkipGram(2).num_targets({"ids": ids}) == len(near)
    torch.testing.assert_close(SkipGram(2).loss_sum(it, {"ids": ids}), -sum(log_probs[at, word] for at, word in near))


def test_micro_batches_equal_the_whole_batch():
    """However a batch is split, the step is the same; with padding, a mean of means would differ."""
    batch = pairs()
    batch["targets"] = torch.where(torch.arange(7) < torch.arange(10)[:, None] % 7 + 1, batch["targets"], IGNORE_INDEX)
    whole, cut = (model("translator-tiny", dropout=0.0) for _ in range(2))
    parts = [{name: array[i : i + 5] for name, array in batch.items()} for i in (0, 5)]
    one = GradientLearner(whole, Seq2Seq(), Optimizer(whole, AdamWConfig()), seed=0).step([batch], 1, 1.0)
    two = GradientLearner(cut, Seq2Seq(), Optimizer(cut, AdamWConfig()), seed=0).step(parts, 1, 1.0)
    assert one.loss == pytest.approx(two.loss, rel=1e-5)
    assert one.grad_norm == pytest.approx(two.grad_norm, rel=1e-4)


@pytest.mark.parametrize(
    ("objective", "name"), [(Contrastive(), "gpt-tiny"), (SkipGram(), "gpt-tiny")], ids=["contrastive", "skip-gram"]
)
def test_wrong_model_is_rejected(objective, name):
    with pytest.raises(InvalidInput):
        objective.loss_sum(model(name), {"ids": ten(), "source": ten()})


def test_counting_needs_an_ngram_model():
    with pytest.raises(InvalidInput, match="n-gram"):
        NGramCounting().count_ngrams(model("gpt-tiny"), {"ids": ten()})
