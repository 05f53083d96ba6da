"""Sampling: filters as in transformers, samples that follow the probabilities, never probability 0."""

import math

import pytest
import torch
from transformers.generation import logits_process as theirs

from peasy.errors import InvalidInput
from peasy.generation import sampling as sampling_module
from peasy.generation.sampling import NoValidToken, Sampler, draw_index
from peasy.generation.sampling_params import SamplingParams

SIZE = 97


def some_logits(seed=0, size=SIZE):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3


def their_probabilities(logits, processors, ids=(0,)):
    logits, ids = logits[None].double(), torch.tensor([list(ids)])
    for processor in processors:
        logits = processor(ids, logits)
    return torch.softmax(logits, dim=-1)[0]


CASES = {
    "temperature": ({"temperature": 0.7}, [theirs.TemperatureLogitsWarper(0.7)]),
    "top-k": ({"temperature": 1.0, "top_k": 5}, [theirs.TopKLogitsWarper(5)]),
    "top-p": ({"temperature": 1.0, "top_p": 0.6}, [theirs.TopPLogitsWarper(0.6)]),
    "top-p of nothing": ({"temperature": 1.0, "top_p": 0.0}, [theirs.TopPLogitsWarper(1e-9)]),
    "min-p": ({"temperature": 1.0, "min_p": 0.1}, [theirs.MinPLogitsWarper(0.1)]),
    "all": (
        {"temperature": 1.7, "top_k": 30, "top_p": 0.8, "min_p": 0.05},
        [
            theirs.TemperatureLogitsWarper(1.7), theirs.TopKLogitsWarper(30),
            theirs.TopPLogitsWarper(0.8), theirs.MinPLogitsWarper(0.05),
        ],
    ),
    "hot": ({"temperature": 50.0, "top_p": 0.9}, [theirs.TemperatureLogitsWarper(50.0), theirs.TopPLogitsWarper(0.9)]),
    "repetition": (
        {"temperature": 0.9, "repetition_penalty": 1.3},
        [theirs.RepetitionPenaltyLogitsProcessor(1.3), theirs.TemperatureLogitsWarper(0.9)],
    ),
    "bias": (
        {"temperature": 1.0, "logit_bias": {3: 5.0, 4: -2.5, 9: -math.inf}},
        [theirs.SequenceBiasLogitsProcessor({(3,): 5.0, (4,): -2.5, (9,): -math.inf})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_probabilities_equal_transformers(case):
    ours, processors = CASES[case]
    for seed in range(20):
        logits, prompt = some_logits(seed).double(), [seed, seed + 7, 2 * seed + 1, 5]
        results = Sampler(SamplingParams(**ours), prompt).probabilities(logits)
        expected = their_probabilities(logits, processors, prompt)
        torch.testing.assert_close(results, expected, rtol=1e-9, atol=1e-12)
        assert torch.equal(results == 0, expected == 0)


def test_the_order_of_the_filters_matters():
    """The inverse: the filters in reverse order give other probabilities."""
    ours, processors = CASES["all"]
    results = Sampler(SamplingParams(**ours)).probabilities(some_logits())
    assert not torch.allclose(results, their_probabilities(some_logits(), processors[::-1]))


def test_presence_and_frequency():
    sampler = Sampler(SamplingParams(temperature=1.0, presence_penalty=0.5, frequency_penalty=0.25), prompt=[7])
    for id in (3, 3, 4):
        sampler.generated_counts[id] += 1
    expected = some_logits().double()
    expected[3] -= 0.5 + 0.25 * 2
    expected[4] -= 0.5 + 0.25
    torch.testing.assert_close(sampler.probabilities(some_logits()), torch.softmax(expected, -1))


def test_repetition_penalty_counts_generated_tokens():
    sampler = Sampler(SamplingParams(temperature=1.0, repetition_penalty=2.0), prompt=[7])
    sampler.generated_counts[5] += 1
    processor = theirs.RepetitionPenaltyLogitsProcessor(2.0)
    torch.testing.assert_close(
        sampler.probabilities(some_logits()), their_probabilities(some_logits(), [processor], (7, 5))
    )


def test_greedy_applies_penalties():
    logits = torch.tensor([1.0, 3.0, 2.9, -1.0])
    assert Sampler(SamplingParams()).sample(logits).id == 1
    assert Sampler(SamplingParams(repetition_penalty=1.5), [1]).sample(logits).id == 2
    assert Sampler(SamplingParams(logit_bias={3: 10})).sample(logits).id == 3
    sampler = Sampler(SamplingParams(frequency_penalty=0.2))
    assert [sampler.sample(logits).id for _ in range(4)] == [1, 2, 1, 2]
    assert Sampler(SamplingParams()).probabilities(logits).tolist() == [0, 1, 0, 0]


def test_input_logits_are_not_modified():
    logits = some_logits()
    before = logits.clone()
    Sampler(SamplingParams(temperature=0.5, top_k=3, repetition_penalty=2.0, logit_bias={1: 4.0}), [1, 2]).sample(
        logits
    )
    assert torch.equal(logits, before)


# Random draws.


def draws(sampler, logits, count):
    return torch.bincount(torch.tensor([sampler.sample(logits).id for _ in range(count)]), minlength=len(logits))


def logits_with_impossible(size=SIZE):
    """Return logits with many impossible tokens, at both ends and in between."""
    logits = some_logits(4, size)
    logits[::3] = -torch.inf
    logits[0] = logits[-1] = -torch.inf
    return logits


def test_samples_follow_the_probabilities():
    """Within four and a half standard deviations for every token."""
    sampler, count = Sampler(SamplingParams(temperature=1.5, top_p=0.95, seed=2)), 4_000
    probabilities = sampler.probabilities(some_logits())
    results = draws(sampler, some_logits(), count) / count
    assert ((results - probabilities).abs() <= 4.5 * (probabilities * (1 - probabilities) / count).sqrt()).all()


def test_tokens_with_probability_zero_are_never_sampled():
    for params in (SamplingParams(temperature=5.0), SamplingParams(temperature=2.0, top_k=20, top_p=0.9, min_p=0.01)):
        sampler = Sampler(params)
        probabilities = sampler.probabilities(logits_with_impossible())
        counts = draws_at_once(probabilities, 50_000, seed=1)
        assert not counts[probabilities == 0].any()
        assert not draws(sampler, logits_with_impossible(), 500)[probabilities == 0].any()


@pytest.mark.slow
def test_tokens_with_probability_zero_are_never_sampled_in_ten_million():
    probabilities = Sampler(SamplingParams(temperature=5.0)).probabilities(logits_with_impossible())
    counts = sum(draws_at_once(probabilities, 1_000_000, seed) for seed in range(10))
    assert not counts[probabilities == 0].any()
    assert counts.sum() == 10_000_000


def draws_at_once(probabilities, count, seed):
    """Draw many indices at once; a part is compared with single draws."""
    u = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    cumulative = probabilities.cumsum(0)
    results = torch.searchsorted(cumulative, u * cumulative[-1], right=True)
    assert results[:500].tolist() == [draw_index(probabilities, float(value)) for value in u[:500]]
    return torch.bincount(results, minlength=len(probabilities))


@pytest.mark.parametrize("u", [0.0, 5e-324, 0.25, 0.5, 1 - 2**-53, 1.0])
def test_draws_at_the_ends_have_positive_probability(u):
    probabilities = torch.tensor([0.0, 0.0, 0.5, 0.0, 0.5, 0.0, 0.0], dtype=torch.float64)
    assert probabilities[draw_index(probabilities, u)] > 0
    many = torch.softmax(logits_with_impossible(5000).double(), -1)
    assert many[draw_index(many, u)] > 0


def test_an_off_by_one_draw_would_be_detected(monkeypatch):
    """The inverse: with a left-sided search, u = 0 gives an index with probability 0."""
    search = torch.searchsorted
    monkeypatch.setattr(sampling_module.torch, "searchsorted", lambda *a, right: search(*a))
    probabilities = torch.tensor([0.0, 0.5, 0.5])
    assert probabilities[draw_index(probabilities, 0.0)] == 0


def test_only_the_seed_determines_the_samples():
    logits = [some_logits(seed) for seed in range(30)]

    def sample_all(seed, num_others=0):
        sampler = Sampler(SamplingParams(temperature=1.0, seed=seed))
        others = [Sampler(SamplingParams(temperature=1.0))] * num_others
        results = []
        for row in logits:
            for other in others:
                other.sample(row)
            results.append(sampler.sample(row).id)
        return results

    assert sample_all(1) == sample_all(1) == sample_all(1, num_others=3)
    assert sample_all(1) != sample_all(2)


def test_tiny_and_huge_logits_give_finite_probabilities():
    for factor in (1e-30, 1e30):
        for temperature in (1e-300, 1e-6, 1.0, 100.0):
            probabilities = Sampler(SamplingParams(temperature=temperature)).probabilities(some_logits() * factor)
            assert torch.isfinite(probabilities).all()
            assert probabilities.sum() == pytest.approx(1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_non_finite_logits_raise(bad, temperature):
    logits = some_logits()
    logits[11] = bad
    with pytest.raises(NoValidToken, match="not finite"):
        Sampler(SamplingParams(temperature=temperature)).sample(logits)
    with pytest.raises(NoValidToken, match="minus infinity"):
        Sampler(SamplingParams(temperature=temperature)).sample(torch.full((5,), -torch.inf))


def test_log_probabilities_are_unprocessed():
    chosen = Sampler(SamplingParams(temperature=0.1, top_k=2, repetition_penalty=2.0, logprobs=3), [1]).sample(
        some_logits()
    )
    logprobs = torch.log_softmax(some_logits().double(), -1)
    assert chosen.logprob == pytest.approx(float(logprobs[chosen.id]))
    assert [c.id for c in chosen.top_logprobs] == logprobs.topk(3).indices.tolist()
    assert Sampler(SamplingParams()).sample(some_logits())[1:] == (None, ())
    only = Sampler(SamplingParams(logprobs=5)).sample(torch.tensor([0.0, -torch.inf]))
    assert [c.id for c in only.top_logprobs] == [0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0}, {"temperature": -1.0}, {"temperature": math.nan}, {"temperature": math.inf}, {"top_k": 0},
        {"top_p": -0.1}, {"top_p": 1.1}, {"top_p": math.nan}, {"min_p": 2.0}, {"repetition_penalty": 0.0},
        {"repetition_penalty": math.nan}, {"presence_penalty": math.inf}, {"frequency_penalty": math.nan},
        {"stop": ("",)}, {"logprobs": -1}, {"logit_bias": {1: math.nan}}, {"logit_bias": {1: math.inf}},
    ],
    ids=str,
)  # fmt: skip
def test_invalid_parameters_are_rejected(wrong):
    with pytest.raises(InvalidInput):
        SamplingParams(**wrong)


def test_a_bias_on_an_unknown_token_raises():
    with pytest.raises(InvalidInput, match="there is no token 99"):
        Sampler(SamplingParams(logit_bias={99: 1.0})).sample(some_logits())


def test_a_single_stop_string_needs_no_list():
    assert SamplingParams(stop="x").stop == ("x",)
