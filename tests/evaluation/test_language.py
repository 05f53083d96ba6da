"""Loss of texts and choice of endings, each against a second computation: manual sums, models that know texts."""

import numpy as np
import pytest
import torch

from peasy import config
from peasy.checkpoint.loaded_model import ModelBundle
from peasy.datasets import open_corpus
from peasy.evaluation.language import ending_accuracy, text_loss
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer
from peasy.training.setup import special_ids

LINES = "The pizza came out of the oven and it tasted good.\nThe oven baked the pizza — it was switched off.\n" * 40


def small(tokenizer) -> ModelBundle:
    special = config.to_plain(special_ids(tokenizer))
    settings = preset("gpt-tiny", vocab_size=len(tokenizer), d_model=16, special_tokens=special)
    return ModelBundle("gpt", build(settings, seed=1), tokenizer)


def test_windows_do_not_depend_on_how_the_text_is_split():
    tokenizer = train_tokenizer([LINES], kind="characters")
    loaded = small(tokenizer)
    whole, _ = text_loss(loaded, [(LINES[:500], False)], 16)
    parts, _ = text_loss(loaded, [(letter, False) for letter in LINES[:500]], 16)
    assert (whole.tokens, whole.correct, whole.bytes) == (parts.tokens, parts.correct, parts.bytes)
    assert whole.nats == pytest.approx(parts.nats, rel=1e-6)


def test_whole_texts_are_evaluated_one_by_one():
    """Second computation: each text alone, after eos, with its own eos predicted."""
    tokenizer = train_tokenizer([LINES], kind="characters")
    tokenizer = tokenizer.with_bos(tokenizer.special_tokens.eos)
    loaded, texts = small(tokenizer), ["it tasted good.", "The oven", "The pizza came out of the oven"]
    result, _ = text_loss(loaded, [(text, True) for text in texts], 64)
    nats, eos = 0.0, tokenizer.special_tokens.eos
    for text in texts:
        ids = torch.tensor([[eos, *tokenizer.encode(text, add_special_tokens=False).ids, eos]])
        with torch.inference_mode():
            logprobs = loaded.model(ids[:, :-1]).log_softmax(-1).gather(2, ids[:, 1:, None])
        nats -= float(logprobs.double().sum())
    assert result.nats == pytest.approx(nats, rel=1e-5)
    assert result.tokens == sum(map(len, texts)) + len(texts)
    assert result.bytes == sum(map(len, texts))


class _KnownTextModel:
    """Model that knows some texts: logit 5 for the next token of a known text, else 0."""

    def __init__(self, loaded, texts):
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.known = {tuple(ids[: i + 1]): ids[i + 1] for ids in texts for i in range(len(ids) - 1)}

    def __call__(self, ids, padding_mask=None):
        logits = torch.zeros(*ids.shape, len(self.tokenizer))
        for row, position in np.ndindex(*ids.shape):
            next_id = self.known.get(tuple(ids[row, : position + 1].tolist()))
            if next_id is not None:
                logits[row, position, next_id] = 5
        return logits


@pytest.mark.parametrize(("taught", "share"), [("right", 1.0), ("wrong", 0.0)])
def test_the_likelier_ending_is_the_choice(taught, share, monkeypatch):
    corpus = open_corpus("stories", num_train=50, num_valid=6)
    tokenizer = train_tokenizer(list(corpus.texts("train")), kind="words")
    loaded = small(tokenizer := tokenizer.with_bos(tokenizer.special_tokens.eos))
    bos = tokenizer.special_tokens.bos
    probes = list(corpus.probes("valid"))
    texts = {"right": [p.text for p in probes], "wrong": [p.prompt + p.wrong for p in probes]}[taught]
    known = _KnownTextModel(
        loaded, [[bos, *ids] for ids in tokenizer.encode_batch_ids(texts, add_special_tokens=False)]
    )
    monkeypatch.setattr(type(loaded.model), "forward", lambda self, ids, padding_mask=None: known(ids))
    assert ending_accuracy(loaded, probes).accuracy == share


@pytest.mark.parametrize(("taught", "share"), [(True, 1.0), (False, 0.0)])
def test_an_ending_without_an_alternative_must_be_generated(taught, share, monkeypatch):
    corpus = open_corpus("copy:3", num_train=50, num_valid=6)
    tokenizer = train_tokenizer(list(corpus.texts("train")), kind="words")
    loaded = small(tokenizer := tokenizer.with_bos(tokenizer.special_tokens.eos))
    bos, probes = tokenizer.special_tokens.bos, list(corpus.probes("valid"))
    rows = (
        [[bos, *ids] for ids in tokenizer.encode_batch_ids([p.text for p in probes], add_special_tokens=False)]
        if taught
        else []
    )
    known = _KnownTextModel(loaded, rows)
    monkeypatch.setattr(type(loaded.model), "forward", lambda self, ids, padding_mask=None: known(ids))
    assert ending_accuracy(loaded, probes).accuracy == share
