"""Speculative decoding changes only the number of passes: same tokens, samples, log-probabilities and ends."""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.generation.tiny_models import model_of, rotary_decoder
from tests.models.tiny_models import BASELINES, DECODERS, RECURRENT_TRANSLATORS, TRANSLATORS, make

from peasy.errors import InvalidInput
from peasy.generation.decode import Pass, decode, generate
from peasy.generation.request import Ended, Token
from peasy.generation.sampling import SampledToken
from peasy.generation.sampling_params import SamplingParams
from peasy.generation.sequence import RunningSequence
from peasy.generation.speculative_decoding import NgramProposer, SpeculationStats

speculative_decode = partial(decode, speculative=True)

PASSAGE = [5, 9, 2, 7, 7, 3, 1, 8]
PROMPTS = [PASSAGE * 3, [1, 2], [4, 4, 4, 4]]
CASES = {
    "greedy": SamplingParams(24),
    "sampled": SamplingParams(24, 1.0, seed=5),
    "low-temperature": SamplingParams(24, 0.2, seed=2, top_k=5, logprobs=2),
    "penalties": SamplingParams(24, 0.3, repetition_penalty=1.2, frequency_penalty=0.3, logprobs=0),
}


def without_passes(events):
    """Return the events of each sequence, without passes and statistics."""
    kept = [rounded(event) for event in events if not isinstance(event, Pass | SpeculationStats)]
    return sorted(kept, key=lambda event: event.choice)  # the order of sequences may differ


def rounded(event):
    """Round log-probabilities to ten digits: only tokens are guaranteed to be identical."""
    if not isinstance(event, Token) or event.sampled.logprob is None:
        return event
    candidates = tuple((id, round(logprob, 10)) for id, logprob in event.sampled.top_logprobs)
    return replace(event, sampled=SampledToken(event.sampled.id, round(event.sampled.logprob, 10), candidates))


def repetitive_model(config, seed=0):
    """Return a model with sharp logits that soon repeats itself, so that drafts are accepted."""
    model = make(config, seed, double=True)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "position" in name or "embedding" in name:
                weight.mul_(2.0)
    return model.eval()


MATRIX = [(name, case) for name in DECODERS for case in ("greedy", "penalties")] + [("rotary", case) for case in CASES]


@pytest.mark.parametrize(("name", "case"), MATRIX)
def test_speculative_decoding_gives_the_same_events(name, case):
    model = repetitive_model(DECODERS[name])
    plain = without_passes(decode(model, PROMPTS, CASES[case]))
    *events, last = speculative_decode(model, PROMPTS, CASES[case])
    assert without_passes(events) == plain
    assert last.num_generated == sum(isinstance(event, Token) for event in plain)
    assert last.num_passes == sum(isinstance(event, Pass) for event in events)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_encoder_decoder_models_give_the_same_events(name):
    model = repetitive_model(TRANSLATORS[name])
    sources, sampling = [[4, 8, 15], [16, 23, 42, 4]], SamplingParams(24, 0.5, seed=1)
    *events, last = speculative_decode(model, source=sources, sampling=sampling)
    assert without_passes(events) == without_passes(decode(model, source=sources, sampling=sampling))
    assert last.num_drafted > 0


def test_repetitive_text_needs_fewer_passes():
    model = repetitive_model(DECODERS["no-position"])
    plain = [event.sampled.id for event in decode(model, [PASSAGE], SamplingParams(80)) if isinstance(event, Token)]
    *events, last = speculative_decode(model, [PASSAGE], SamplingParams(80))
    assert [event.sampled.id for event in events if isinstance(event, Token)] == plain
    assert last.num_passes < 40
    assert last.acceptance_rate > 0.8
    assert last.summary().startswith(f"{last.num_accepted} of {last.num_drafted} draft tokens accepted")


def test_rejection_after_sliding_window_eviction():
    """Long enough for eviction, with drafts accepted and rejected before and after."""
    model, sampling = repetitive_model(rotary_decoder(window=5)), SamplingParams(60, 0.7, seed=3)
    prompt = (PASSAGE * 40)[:240]
    *events, last = speculative_decode(model, [prompt], sampling)
    assert without_passes(events) == without_passes(decode(model, [prompt], sampling))
    assert 0 < last.num_accepted < last.num_drafted


def test_keeping_rejected_drafts_in_the_cache_would_be_detected(monkeypatch):
    """The inverse: without cropping, rejected drafts stay in the cache."""
    model = repetitive_model(DECODERS["rotary"])
    plain = without_passes(decode(model, [PASSAGE * 3], CASES["sampled"]))
    monkeypatch.setattr("peasy.nn.kv_cache.KVCache.crop", lambda self, length: None)
    assert without_passes(speculative_decode(model, [PASSAGE * 3], CASES["sampled"])) != plain


def sample_counts(decode_fn, model, count: int) -> Counter[tuple[int, ...]]:
    """Count the sampled triples of tokens over many seeds."""
    generated: dict[int, list[int]] = {}
    prompts, params = [[1, 2, 0, 1, 2]] * count, [SamplingParams(3, 1.0, seed=seed) for seed in range(count)]
    for event in decode_fn(model, prompts, params):
        if isinstance(event, Token):
            generated.setdefault(event.choice, []).append(event.sampled.id)
    return Counter(map(tuple, generated.values()))


def tiny_model():
    """Return a model with three tokens and an uneven distribution: some drafts are accepted, some rejected."""
    from peasy.models import config as kinds
    from peasy.nn import config as nn_config

    stack = nn_config.StackConfig(1, nn_config.AttentionConfig(1), nn_config.MLPConfig(8), nn_config.LayerNormConfig())
    return make(kinds.DecoderConfig(3, 8, stack, None, nn_config.RotaryConfig()), seed=3).eval()


def true_probabilities(model) -> dict[tuple[int, ...], float]:
    """Return the probability of every triple of tokens from the model's softmax."""
    probabilities = {(): 1.0}
    for _ in range(3):
        longer = {}
        for row, probability in probabilities.items():
            with torch.inference_mode():
                softmax = torch.softmax(model(torch.tensor([[1, 2, 0, 1, 2, *row]]))[0, -1].double(), dim=-1)
            longer |= {(*row, id): probability * float(softmax[id]) for id in range(3)}
        probabilities = longer
    return probabilities


def chi_square(counts: Counter, probabilities: dict, count: int) -> float:
    """Chi-square with 26 degrees of freedom: about 26 if samples follow the probabilities, above 54 once in 1,000."""
    return sum(
        (counts[row] - count * probability) ** 2 / (count * probability) for row, probability in probabilities.items()
    )


def test_samples_follow_the_probabilities_with_drafts():
    """All 27 triples, 1,500 samples, with drafts accepted and rejected."""
    model, count = tiny_model(), 1500
    stats = []

    def decode_with_stats(*args):
        for event in speculative_decode(*args):
            if isinstance(event, SpeculationStats):
                stats.append(event)
            yield event

    assert chi_square(sample_counts(decode_with_stats, model, count), true_probabilities(model), count) < 54.05
    assert 0.05 < stats[0].acceptance_rate < 0.95


def test_biased_acceptance_would_be_detected(monkeypatch):
    """The inverse: a sampler biased towards the draft fails the same test."""
    original = RunningSequence._sample_next

    def biased(self, logits, eos, attention=()):
        if self.num_generated and self.sampler.rng.random() < 0.5:
            logits = logits.clone()
            logits[2] += 1.5
        original(self, logits, eos)

    monkeypatch.setattr(RunningSequence, "_sample_next", biased)
    model, count = tiny_model(), 1500
    assert chi_square(sample_counts(speculative_decode, model, count), true_probabilities(model), count) > 54.05


@pytest.mark.parametrize("name", BASELINES | RECURRENT_TRANSLATORS)
def test_models_without_croppable_state_are_rejected(name):
    model = make((BASELINES | RECURRENT_TRANSLATORS)[name])
    inputs = {"source": [[1]]} if model.is_encoder_decoder else {"prompts": [[1]]}
    with pytest.raises(InvalidInput, match="cannot drop rejected"):
        generate(model, speculative=True, **inputs)


def test_learned_positions_are_filled_and_not_exceeded():
    model = repetitive_model(DECODERS["learned"])
    plain = without_passes(decode(model, [PASSAGE * 6], SamplingParams(40)))
    assert without_passes(speculative_decode(model, [PASSAGE * 6], SamplingParams(40))) == plain
    assert plain[-1] == Ended(0, "length", 17)


def test_an_invalid_prompt_does_not_affect_the_others():
    model = model_of("decoder")
    events = without_passes(speculative_decode(model, [[1, 2], [99], PASSAGE], SamplingParams(5)))
    assert [event.reason for event in events if isinstance(event, Ended)] == ["length", "error", "length"]


def test_drafts_copy_the_last_continuation():
    proposer = NgramProposer([1, 2, 3, 1, 2, 4, 1, 2])
    assert proposer.propose(2) == [4, 1]  # 4 followed the last 1 2
    assert proposer.propose(5) == [4, 1, 2, 4, 1]  # periodic continuation
    assert NgramProposer([1, 2, 3]).propose(4) == []
    assert NgramProposer([]).propose(4) == []
    assert NgramProposer([7, 7, 7]).propose(3) == [7, 7, 7]
    assert NgramProposer([1, 2, 9, 8, 2, 1, 2]).propose(1) == [9]


@torch.inference_mode()
def test_a_windowed_cache_crops_only_within_the_window():
    """Cropping into the window after the evicted keys would leave fewer keys than the window needs."""
    model = make(rotary_decoder(window=5), double=True).eval()
    ids = (PASSAGE * 40)[:270]
    state = model.new_state()
    for new in ids:
        model.forward_varlen([[new]], [state])
    evicted = state.layers[0].num_evicted
    assert evicted
    for length in (evicted + 5, evicted + 4):
        state.crop(length)
        (actual,), (expected,) = (
            model.forward_varlen([[1]], [state.fork()]),
            model(torch.tensor([[*ids[:length], 1]]))[:, -1],
        )
        torch.testing.assert_close(actual, expected)
    with pytest.raises(InvalidInput, match=f"cannot be cropped to {evicted + 3} tokens"):
        state.crop(evicted + 3)
