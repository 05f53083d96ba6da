"""N-gram model: against counts by hand and the definition."""

from collections import Counter

import pytest
import torch
from tests.models.tiny_models import some_ids

from peasy.models.build import build
from peasy.models.config import NGramConfig


def model_of(*texts, vocabulary=5, order=3, discount=0.75):
    model = build(NGramConfig(vocabulary, order, discount))
    for text in texts:
        model.observe(torch.tensor([text]))
    return model


def by_definition(texts, before, vocabulary, order, discount):
    """p_n(w) = (count - d) / total + d * distinct / total * p_(n-1)(w), from dictionaries of tuples."""
    chance = [1 / vocabulary] * vocabulary
    for n in range(1, order + 1):
        if n - 1 > len(before):
            break
        context = tuple(before[len(before) - n + 1 :])
        counts = Counter(
            text[i + n - 1] for text in texts for i in range(len(text) - n + 1) if tuple(text[i : i + n - 1]) == context
        )
        total = sum(counts.values())
        if total:
            left = discount * len(counts) / total
            chance = [(counts[w] - discount) / total * (w in counts) + left * chance[w] for w in range(vocabulary)]
    return chance


def test_by_hand():
    """a b a c: a is followed by b once and by c once."""
    model = model_of([0, 1, 0, 2], vocabulary=3, order=2, discount=0.5)
    chance = model(torch.tensor([[0]])).exp()[0, 0]
    single = [(2 - 0.5) / 4 + 0.125, (1 - 0.5) / 4 + 0.125, (1 - 0.5) / 4 + 0.125]
    expected = [0.5 * single[0], 0.25 + 0.5 * single[1], 0.25 + 0.5 * single[2]]
    torch.testing.assert_close(chance, torch.tensor(expected))


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_by_definition(order):
    texts = [text.tolist() for text in some_ids(4, 30) % 6]
    model = model_of(*texts, vocabulary=6, order=order, discount=0.6)
    probe = (some_ids(1, 12, seed=11) % 6)[0].tolist()
    found = model(torch.tensor([probe])).exp()[0]
    for place in range(12):
        expected = by_definition(texts, probe[: place + 1], 6, order, 0.6)
        torch.testing.assert_close(found[place], torch.tensor(expected), atol=1e-6, rtol=1e-5)


def test_probabilities_sum_to_one():
    model = model_of(*(some_ids(3, 50) % 9).tolist(), vocabulary=9)
    torch.testing.assert_close(model(some_ids(2, 20) % 9).exp().sum(-1), torch.ones(2, 20))


def test_counts_accumulate_over_calls():
    texts = some_ids(6, 25) % 9
    once, parts = model_of(vocabulary=9), model_of(vocabulary=9)
    once.observe(texts)
    for text in texts:
        parts.observe(text[None])
    assert all(torch.equal(a, b) for a, b in zip(once.state_dict().values(), parts.state_dict().values(), strict=True))


def test_padding_is_not_counted():
    padded, plain = model_of(vocabulary=9), model_of([1, 2, 3], vocabulary=9)
    padded.observe(torch.tensor([[7, 7, 1, 2, 3, 8]]), torch.tensor([[False, False, True, True, True, False]]))
    assert all(
        torch.equal(a, b) for a, b in zip(padded.state_dict().values(), plain.state_dict().values(), strict=True)
    )


def test_large_vocabulary_and_order_do_not_overflow():
    model = build(NGramConfig(200_000, 6))
    ids = torch.randint(0, 200_000, (4, 100), generator=torch.Generator().manual_seed(0))
    model.observe(ids)
    assert model.count_parameters() == len(ids.unique()) + sum(4 * (100 - n) for n in range(1, 6))
    scores = model(ids[:1, :50])
    assert (scores.argmax(-1)[0, 6:49] == ids[0, 7:50]).all()


def test_uniform_without_counts():
    torch.testing.assert_close(model_of()(torch.tensor([[1, 2]])).exp(), torch.full((1, 2, 5), 0.2))
