"""N-gram model: against counts by hand and the definition."""

from collections import Counter

import pytest
import torch
from tests.models.tiny_models import some_ids

from peasy.models.build import build
from peasy.models.config import NGramConfig


def model_of(*texts, vocab_size=5, order=3, discount=0.75):
    model = build(NGramConfig(vocab_size, order, discount))
    for text in texts:
        model.add_counts(torch.tensor([text]))
    return model


def by_definition(texts, context_ids, vocab_size, order, discount):
    """p_n(w) = (count - d) / total + d * distinct / total * p_(n-1)(w), from dictionaries of tuples."""
    probabilities = [1 / vocab_size] * vocab_size
    for n in range(1, order + 1):
        if n - 1 > len(context_ids):
            break
        context = tuple(context_ids[len(context_ids) - n + 1 :])
        counts = Counter(
            text[i + n - 1] for text in texts for i in range(len(text) - n + 1) if tuple(text[i : i + n - 1]) == context
        )
        total = sum(counts.values())
        if total:
            backoff = discount * len(counts) / total
            probabilities = [
                (counts[w] - discount) / total * (w in counts) + backoff * probabilities[w] for w in range(vocab_size)
            ]
    return probabilities


def test_by_hand():
    """a b a c: a is followed by b once and by c once."""
    model = model_of([0, 1, 0, 2], vocab_size=3, order=2, discount=0.5)
    probabilities = model(torch.tensor([[0]])).exp()[0, 0]
    single = [(2 - 0.5) / 4 + 0.125, (1 - 0.5) / 4 + 0.125, (1 - 0.5) / 4 + 0.125]
    expected = [0.5 * single[0], 0.25 + 0.5 * single[1], 0.25 + 0.5 * single[2]]
    torch.testing.assert_close(probabilities, torch.tensor(expected))


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_by_definition(order):
    texts = [text.tolist() for text in some_ids(4, 30) % 6]
    model = model_of(*texts, vocab_size=6, order=order, discount=0.6)
    probe = (some_ids(1, 12, seed=11) % 6)[0].tolist()
    actual = model(torch.tensor([probe])).exp()[0]
    for position in range(12):
        expected = by_definition(texts, probe[: position + 1], 6, order, 0.6)
        torch.testing.assert_close(actual[position], torch.tensor(expected), atol=1e-6, rtol=1e-5)


def test_probabilities_sum_to_one():
    model = model_of(*(some_ids(3, 50) % 9).tolist(), vocab_size=9)
    torch.testing.assert_close(model(some_ids(2, 20) % 9).exp().sum(-1), torch.ones(2, 20))


def test_counts_accumulate_over_calls():
    texts = some_ids(6, 25) % 9
    once, parts = model_of(vocab_size=9), model_of(vocab_size=9)
    once.add_counts(texts)
    for text in texts:
        parts.add_counts(text[None])
    assert all(torch.equal(a, b) for a, b in zip(once.state_dict().values(), parts.state_dict().values(), strict=True))


def test_padding_is_not_counted():
    padded, plain = model_of(vocab_size=9), model_of([1, 2, 3], vocab_size=9)
    padded.add_counts(torch.tensor([[7, 7, 1, 2, 3, 8]]), torch.tensor([[False, False, True, True, True, False]]))
    assert all(
        torch.equal(a, b) for a, b in zip(padded.state_dict().values(), plain.state_dict().values(), strict=True)
    )


def test_large_vocabulary_and_order_do_not_overflow():
    model = build(NGramConfig(200_000, 6))
    ids = torch.randint(0, 200_000, (4, 100), generator=torch.Generator().manual_seed(0))
    model.add_counts(ids)
    assert model.count_parameters() == len(ids.unique()) + sum(4 * (100 - n) for n in range(1, 6))
    logits = model(ids[:1, :50])
    assert (logits.argmax(-1)[0, 6:49] == ids[0, 7:50]).all()


def test_uniform_without_counts():
    torch.testing.assert_close(model_of()(torch.tensor([[1, 2]])).exp(), torch.full((1, 2, 5), 0.2))
