"""Beam search: equal to exhaustive search, to greedy with one beam, and independent of the batch."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from tests.models.tiny_models import DECODERS, GENERATIVE_MODELS, SEQ2SEQ_MODELS, make

from peasy.errors import InvalidInput
from peasy.generation.decode import beam_search, generate
from peasy.generation.sampling_params import BeamSearchParams, SamplingParams
from peasy.models import config as kinds
from peasy.nn import config as nn_config

SOURCES = [[4, 8, 15, 16], [23], [42, 4, 8]]
PROMPTS = [[5, 9, 2], [7], [3, 3, 8, 1, 4, 9]]
TINY = kinds.DecoderConfig(
    4,
    16,
    nn_config.StackConfig(2, nn_config.AttentionConfig(2), nn_config.MLPConfig(24)),
    16,
    special_tokens=kinds.SpecialTokensConfig(eos=(0,)),
)


def inputs_for(model):
    return {"source": SOURCES} if model.is_encoder_decoder else {"prompts": PROMPTS}


def with_eos(model, eos):
    model.config = replace(model.config, special_tokens=replace(model.config.special_tokens, eos=eos))
    return model


def exhaustive(model, prompt, length, penalty, eos=0):
    """Score every sequence up to a length by a full forward pass; best first."""
    results = []
    for size in range(1, length + 1):
        for ids in itertools.product(range(model.config.vocab_size), repeat=size):
            if eos in ids[:-1] or (size < length and ids[-1] != eos):
                continue
            with torch.inference_mode():
                logprobs = torch.log_softmax(model(torch.tensor([[*prompt, *ids]]))[0].double(), -1)
            total = sum(float(logprobs[len(prompt) - 1 + position, id]) for position, id in enumerate(ids))
            results.append((total / size**penalty, ids))
    return sorted(results, reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_wide_beams_match_exhaustive_search(penalty, seed):
    model = make(TINY, seed=seed, double=True)
    best = exhaustive(model, [1, 2], 4, penalty)[:5]
    params = BeamSearchParams(num_beams=400, max_tokens=4, length_penalty=penalty, n=5, early_stopping="never")
    results = beam_search(model, [[1, 2]], params)[0].hypotheses
    assert [hypothesis.ids for hypothesis in results] == [ids for _, ids in best]
    assert [hypothesis.score for hypothesis in results] == pytest.approx([score for score, _ in best])


def test_a_narrow_beam_can_miss_the_best():
    """The inverse of the test above: not every search finds the best."""
    params = BeamSearchParams(num_beams=1, max_tokens=3, length_penalty=0.0)
    models = (make(TINY, seed=seed, double=True) for seed in range(20))
    assert any(
        beam_search(model, [[1, 2]], params)[0].hypotheses[0].ids != exhaustive(model, [1, 2], 3, 0.0)[0][1]
        for model in models
    )


@pytest.mark.parametrize("name", GENERATIVE_MODELS)
def test_one_beam_is_greedy(name):
    model = make(GENERATIVE_MODELS[name], double=True)
    inputs = inputs_for(model)
    results = [
        list(result.hypotheses[0].ids)
        for result in beam_search(model, params=BeamSearchParams(num_beams=1, max_tokens=8), **inputs)
    ]
    assert results == generate(model, sampling=SamplingParams(8), **inputs)


@pytest.mark.parametrize("name", ["rotary", "window", "lstm", "ngram", "seq2seq", "recurrent-translator"])
def test_batched_search_equals_single_searches(name):
    model = with_eos(make(GENERATIVE_MODELS[name], double=True), (3, 11))
    inputs, params = inputs_for(model), BeamSearchParams(num_beams=3, max_tokens=7, n=3)
    together = beam_search(model, params=params, **inputs)
    for row, results in enumerate(together):
        alone = beam_search(model, params=params, **{key: [value[row]] for key, value in inputs.items()})[0]
        assert [hypothesis.ids for hypothesis in alone.hypotheses] == [
            hypothesis.ids for hypothesis in results.hypotheses
        ]


@pytest.mark.parametrize("name", ["rotary", "lstm", "seq2seq"])
def test_scores_equal_those_of_a_full_forward_pass(name):
    model = with_eos(make(GENERATIVE_MODELS[name], double=True), (3,))
    inputs = inputs_for(model)
    for row, results in enumerate(
        beam_search(model, params=BeamSearchParams(num_beams=4, max_tokens=6, n=4), **inputs)
    ):
        assert [hypothesis.score for hypothesis in results.hypotheses] == sorted(
            (hypothesis.score for hypothesis in results.hypotheses), reverse=True
        )
        for hypothesis in results.hypotheses:
            prompt = [0] if model.is_encoder_decoder else PROMPTS[row]
            source = {"source": torch.tensor([SOURCES[row]])} if model.is_encoder_decoder else {}
            with torch.inference_mode():
                logprobs = torch.log_softmax(
                    model(torch.tensor([[*prompt, *hypothesis.ids]]), **source)[0].double(), -1
                )
            total = sum(float(logprobs[len(prompt) - 1 + position, id]) for position, id in enumerate(hypothesis.ids))
            assert hypothesis.logprob == pytest.approx(total)
            assert hypothesis.score == pytest.approx(total / len(hypothesis.ids))
            assert hypothesis.has_eos == (hypothesis.ids[-1] == 3)


def test_beams_sharing_a_state_would_be_detected(monkeypatch):
    """The inverse: a fork that returns the same state."""
    from peasy.nn.kv_cache import KVCache

    model, params = make(DECODERS["rotary"], double=True), BeamSearchParams(num_beams=4, max_tokens=6, n=4)
    expected = beam_search(model, PROMPTS, params)
    monkeypatch.setattr(KVCache, "fork", lambda self: self)
    assert beam_search(model, PROMPTS, params) != expected


def test_the_source_is_encoded_once():
    model, calls = make(SEQ2SEQ_MODELS["seq2seq"]), []
    model.encoder.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    beam_search(model, params=BeamSearchParams(num_beams=4, max_tokens=6), source=SOURCES)
    assert len(calls) == len(SOURCES)


def test_length_penalty_prefers_long_or_short_sequences():
    model = with_eos(make(DECODERS["rotary"], double=True), tuple(range(0, 61, 4)))
    lengths = []
    for penalty in (-2.0, 0.0, 4.0):
        params = BeamSearchParams(num_beams=8, max_tokens=12, length_penalty=penalty, early_stopping="never")
        lengths.append(len(beam_search(model, [[5]], params)[0].hypotheses[0].ids))
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_a_failing_prompt_does_not_affect_the_others():
    model = make(DECODERS["learned"])
    results = beam_search(model, [[5, 9], [], [61], [1] * 65], BeamSearchParams(max_tokens=4))
    assert results[0] == beam_search(model, [[5, 9]], BeamSearchParams(max_tokens=4))[0]
    assert [result.error is None for result in results] == [True, False, False, False]
    with torch.no_grad():
        model.embedding.token.weight[7] = math.nan
    assert "not finite" in beam_search(model, [[5]], BeamSearchParams(max_tokens=2))[0].error.message


def test_invalid_parameters_are_rejected():
    invalid = {"num_beams": 0, "n": 5, "length_penalty": math.nan, "early_stopping": "sure", "max_tokens": 0}
    for name, value in invalid.items():
        with pytest.raises(InvalidInput):
            BeamSearchParams(**{name: value})
    with pytest.raises(InvalidInput, match="prompt is empty"):
        beam_search(make(DECODERS["learned"]))


def test_search_keeps_double_precision():
    model = make(DECODERS["rotary"]).double().eval()
    (best,) = beam_search(model, [[1, 2, 3]], BeamSearchParams(num_beams=3, max_tokens=5))[0].hypotheses
    with torch.inference_mode():
        logprobs = model(torch.tensor([[1, 2, 3, *best.ids]])).log_softmax(-1)[0, 2:-1]
    assert best.logprob == pytest.approx(float(logprobs[range(5), list(best.ids)].sum()), abs=1e-12)
