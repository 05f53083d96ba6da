"""Word2vec model by its definition."""

import torch

from peasy.models.build import build
from peasy.models.config import Word2VecConfig


def test_next_word_from_the_mean_of_the_last():
    model = build(Word2VecConfig(11, 4, window=3))
    ids = torch.tensor([[5, 2, 9, 1]])
    vectors, out = model.embedding.weight, model.lm_head.weight
    for position, words in enumerate(([5], [5, 2], [5, 2, 9], [2, 9, 1])):
        torch.testing.assert_close(model(ids)[0, position], out @ vectors[words].mean(0))


def test_skip_gram_uses_only_the_word():
    model = build(Word2VecConfig(11, 4, "skip-gram", 3))
    torch.testing.assert_close(model(torch.tensor([[5, 2]]))[0, 1], model.lm_head.weight @ model.embedding.weight[2])


def test_words_with_the_same_next_word_get_similar_vectors():
    """ "awesome" and "great" have the same next word: training moves them together."""
    pizza, phone, great, awesome, end = range(5)
    texts = torch.tensor([[pizza, great, end], [phone, awesome, end], [pizza, awesome, end], [phone, great, end]])
    model = build(Word2VecConfig(5, 2), seed=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def similarity():
        return torch.nn.functional.cosine_similarity(*model.embedding.weight[[great, awesome]], dim=0).item()

    before = similarity()
    for _ in range(200):
        optimizer.zero_grad()
        logits = model(texts[:, :-1]).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, texts[:, 1:].flatten()).backward()
        optimizer.step()
    assert similarity() > 0.99 > before
