"""Streamed generation equals a trace; probabilities and cache savings are checked independently."""

import numpy as np
import pytest
import torch

from peasy.commands.generation_stream import (
    GenerationEnd,
    GenerationStart,
    cache_savings,
    next_token_probs,
    stream_generation,
)
from peasy.commands.load import LoadedModel
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer

TEXT = "the cat sat"


@pytest.fixture(scope="module")
def loaded():
    words = train_tokenizer(["the cat sat on the mat and the dog ran"] * 9, "words")
    return LoadedModel("cats", build(preset("gpt-tiny", vocabulary=len(words)), seed=1), words)


def test_stream_equals_trace(loaded):
    how = {"max_tokens": 5, "temperature": 0.9, "seed": 4}
    first, *steps, last = stream_generation(loaded, TEXT, **how)
    traced = loaded.trace(TEXT, **how)
    assert isinstance(first, GenerationStart)
    assert isinstance(last, GenerationEnd)
    assert [step.id for step in steps] == [step.id for step in traced.steps]
    for mine, theirs in zip(steps, traced.steps, strict=True):
        assert (mine.num_computed, mine.num_cached) == (theirs.computed, theirs.reused)
        assert mine.cumulative_logprob == pytest.approx(theirs.score)
        for one, other in zip(mine.attention, theirs.looked, strict=True):
            np.testing.assert_array_equal(one.keys, other.keys)
            np.testing.assert_allclose(one.weights, other.weights)


def test_stream_continues_after_written_tokens(loaded):
    ids = [step.id for step in stream_generation(loaded, TEXT, max_tokens=4) if hasattr(step, "id")]
    start, *rest, _ = stream_generation(loaded, TEXT, written=ids[:2], max_tokens=2)
    assert [step.id for step in rest] == ids[2:]
    assert start.ids[-2:] == tuple(ids[:2])


def test_closing_stops_generation(loaded):
    events = stream_generation(loaded, TEXT, max_tokens=100)
    next(events), next(events)
    events.close()
    with pytest.raises(StopIteration):
        next(events)


def test_probabilities_equal_plain_numpy(loaded):
    ids = torch.tensor([loaded.prompt(TEXT)])
    logits = loaded.model(ids, last_only=True)[0, -1].detach().double().numpy()
    found = next_token_probs(loaded, TEXT, temperature=0.7, top_k=3, best=6)
    order = np.argsort(-logits)[:6]
    plain = np.exp(logits - logits.max())
    plain /= plain.sum()
    kept = np.exp((logits[order[:3]] - logits.max()) / 0.7)
    assert [each.id for each in found.choices] == order.tolist()
    np.testing.assert_allclose([each.prob for each in found.choices], plain[order], rtol=1e-4)
    np.testing.assert_allclose([each.sampling_prob for each in found.choices][:3], kept / kept.sum(), rtol=1e-4)
    assert [each.sampling_prob for each in found.choices][3:] == [0, 0, 0]
    assert found.num_candidates == 3
    assert found.rest[0] == pytest.approx(1 - plain[order].sum(), abs=1e-4)
    assert "can be sampled" in found.text()


def test_cache_gives_same_logits_with_less_work(loaded):
    ids = [step.id for step in stream_generation(loaded, TEXT, max_tokens=4) if hasattr(step, "id")]
    found = cache_savings(loaded, TEXT, ids).data()
    assert found["total"]["apart"] < 1e-4
    assert found["total"]["work"] < found["total"]["work_without"]
    assert [step["reused"] for step in found["steps"]] == [0, 3, 4, 5]
    with pytest.raises(InvalidInput, match="Nothing was generated"):
        cache_savings(loaded, TEXT, [])


def test_unknown_ids_are_rejected(loaded):
    for work in (
        lambda: next_token_probs(loaded, TEXT, written=[10**6]),
        lambda: cache_savings(loaded, TEXT, [10**6]),
        lambda: list(stream_generation(loaded, TEXT, written=[10**6])),
    ):
        with pytest.raises(InvalidInput, match="no token 1000000"):
            work()
