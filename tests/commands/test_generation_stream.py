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
    return LoadedModel("cats", build(preset("gpt-tiny", vocab_size=len(words)), seed=1), words)


def test_stream_equals_trace(loaded):
    options = {"max_tokens": 5, "temperature": 0.9, "seed": 4}
    first, *steps, last = stream_generation(loaded, TEXT, **options)
    traced = loaded.trace(TEXT, **options)
    assert isinstance(first, GenerationStart)
    assert isinstance(last, GenerationEnd)
    assert [step.id for step in steps] == [step.id for step in traced.steps]
    for mine, theirs in zip(steps, traced.steps, strict=True):
        assert (mine.num_computed, mine.num_cached) == (theirs.num_computed, theirs.num_cached)
        assert mine.cumulative_logprob == pytest.approx(theirs.cumulative_logprob)
        for one, other in zip(mine.attention, theirs.attention, strict=True):
            np.testing.assert_array_equal(one.keys, other.keys)
            np.testing.assert_allclose(one.weights, other.weights)


def test_stream_continues_after_generated_tokens(loaded):
    ids = [step.id for step in stream_generation(loaded, TEXT, max_tokens=4) if hasattr(step, "id")]
    start, *rest, _ = stream_generation(loaded, TEXT, generated_ids=ids[:2], max_tokens=2)
    assert [step.id for step in rest] == ids[2:]
    assert start.ids[-2:] == tuple(ids[:2])


def test_closing_stops_generation(loaded):
    events = stream_generation(loaded, TEXT, max_tokens=100)
    next(events), next(events)
    events.close()
    with pytest.raises(StopIteration):
        next(events)


def test_probabilities_equal_plain_numpy(loaded):
    ids = torch.tensor([loaded.encode_prompt(TEXT)])
    logits = loaded.model(ids, last_only=True)[0, -1].detach().double().numpy()
    result = next_token_probs(loaded, TEXT, temperature=0.7, top_k=3, top=6)
    order = np.argsort(-logits)[:6]
    plain = np.exp(logits - logits.max())
    plain /= plain.sum()
    candidates = np.exp((logits[order[:3]] - logits.max()) / 0.7)
    assert [choice.id for choice in result.choices] == order.tolist()
    np.testing.assert_allclose([choice.probability for choice in result.choices], plain[order], rtol=1e-4)
    np.testing.assert_allclose(
        [choice.adjusted_probability for choice in result.choices][:3], candidates / candidates.sum(), rtol=1e-4
    )
    assert [choice.adjusted_probability for choice in result.choices][3:] == [0, 0, 0]
    assert result.num_candidates == 3
    assert result.rest[0] == pytest.approx(1 - plain[order].sum(), abs=1e-4)
    assert "can be sampled" in result.text()


def test_cache_gives_same_logits_with_less_work(loaded):
    ids = [step.id for step in stream_generation(loaded, TEXT, max_tokens=4) if hasattr(step, "id")]
    data = cache_savings(loaded, TEXT, ids).data()
    assert data["total"]["max_difference"] < 1e-4
    assert data["total"]["multiplications"] < data["total"]["multiplications_uncached"]
    assert [step["num_cached"] for step in data["steps"]] == [0, 3, 4, 5]
    with pytest.raises(InvalidInput, match="Nothing was generated"):
        cache_savings(loaded, TEXT, [])


def test_unknown_ids_are_rejected(loaded):
    for call in (
        lambda: next_token_probs(loaded, TEXT, generated_ids=[10**6]),
        lambda: cache_savings(loaded, TEXT, [10**6]),
        lambda: list(stream_generation(loaded, TEXT, generated_ids=[10**6])),
    ):
        with pytest.raises(InvalidInput, match="no token 1000000"):
            call()
