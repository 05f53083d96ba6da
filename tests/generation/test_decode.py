"""Decoding loop: cached equals uncached, batched equals single, greedy takes the argmax, seeds determine samples."""

from dataclasses import replace

import pytest
import torch
from tests.models.tiny_models import BASELINES, DECODERS, ENCODERS, SOURCED, WRITERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.generation import decode as decode_module
from peasy.generation.decode import Pass, decode, generate
from peasy.generation.request import Ended, Token
from peasy.generation.sampling import NoValidToken, Sampler, SamplingParams
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn.kv_cache import LayerKVCache
from peasy.tokenization import train_tokenizer

PROMPTS = [[5, 9, 2], [7], [3, 3, 8, 1, 4, 9]]
SOURCES = [[4, 8, 15, 16], [23], [42, 4, 8]]


def inputs_for(model):
    return {"source": SOURCES} if model.reads_source else {"prompts": PROMPTS}


def single_input(given, row):
    return {key: [value[row]] for key, value in given.items()}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_cached_equals_uncached(name, temperature):
    model = make(WRITERS[name], double=True)
    sampling = SamplingParams(12, temperature, seed=7)
    given = inputs_for(model)
    assert generate(model, sampling=sampling, **given) == generate(model, sampling=sampling, cached=False, **given)


@pytest.mark.parametrize("name", WRITERS)
def test_batched_decoding_equals_single_sequences(name):
    model = make(WRITERS[name], double=True)
    given = inputs_for(model)
    together = generate(model, sampling=SamplingParams(10, 0.9, seed=3), **given)
    for row, text in enumerate(together):
        assert generate(model, sampling=SamplingParams(10, 0.9, seed=3 + row), **single_input(given, row)) == [text]


@pytest.mark.parametrize("name", DECODERS | BASELINES)
def test_greedy_takes_the_argmax(name):
    model = make((DECODERS | BASELINES)[name], double=True)
    text = list(PROMPTS[0])
    for new in generate(model, [text], SamplingParams(8))[0]:
        with torch.inference_mode():
            assert new == int(model(torch.tensor([text]))[0, -1].argmax())
        text.append(new)


def test_tokens_with_probability_zero_are_never_sampled():
    model = make(DECODERS["learned-offset"])
    with torch.no_grad():
        model.head.bias[::2] = -torch.inf
    drawn = generate(model, [[5]] * 64, SamplingParams(20, 5.0))
    assert all(new % 2 for text in drawn for new in text)


def test_eos_ends_only_its_own_sequence():
    model = make(DECODERS["rotary"])
    free = generate(model, PROMPTS, SamplingParams(15))
    end = free[1][4]
    model.config = replace(model.config, special=replace(model.config.special_tokens, end=(end,)))
    for text, all_of_it in zip(generate(model, PROMPTS, SamplingParams(15)), free, strict=True):
        stop = all_of_it.index(end) + 1 if end in all_of_it else 15
        assert text == all_of_it[:stop]


def test_closing_the_iterator_stops_decoding():
    model = make(DECODERS["rotary"])
    steps = decode(model, PROMPTS, SamplingParams(1000))
    assert isinstance(next(steps), Pass)
    assert next(steps).sampled.id >= 0
    steps.close()
    assert list(steps) == []


def test_the_seed_determines_the_output():
    model = make(DECODERS["rotary"])
    one, same, other = (generate(model, PROMPTS, SamplingParams(20, 1.0, seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_missing_prompts_are_rejected():
    model = make(DECODERS["rotary"])
    for prompts in (None, [], [[1], []]):
        with pytest.raises(InvalidInput, match="prompt is empty"):
            generate(model, prompts)
    with pytest.raises(InvalidInput, match="3 sources and 1 prompts"):
        generate(make(SOURCED["both"]), [[1]], source=SOURCES)
    with pytest.raises(InvalidInput, match="cannot generate text"):
        generate(make(ENCODERS["encoder"]), [[1]])
    with pytest.raises(InvalidInput, match="temperature is -1"):
        SamplingParams(temperature=-1.0)


@pytest.mark.parametrize("cached", [True, False])
def test_learned_positions_limit_the_length(cached):
    model = make(DECODERS["learned"])
    written = generate(model, some_ids(2, 60).tolist(), SamplingParams(20), cached=cached)
    assert [len(text) for text in written] == [5, 5]
    with pytest.raises(InvalidInput, match="has 65 tokens; this model reads at most 64"):
        generate(model, some_ids(1, 65).tolist(), SamplingParams(20), cached=cached)


def test_inference_mode_does_not_leak_between_steps():
    steps = decode(make(DECODERS["rotary"]), PROMPTS, SamplingParams(3))
    for _ in steps:
        assert not torch.is_inference_mode_enabled()


def test_no_gradients_are_kept():
    model = make(DECODERS["rotary"])
    generate(model, some_ids(1, 5).tolist(), SamplingParams(3))
    assert all(weight.grad is None for weight in model.parameters())


# Prefill: in chunks, once for shared prompts, with NaN in unused capacity.


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_chunked_prefill_equals_full_prefill(name, chunk):
    model = make(WRITERS[name], double=True)
    given = inputs_for(model)
    assert generate(model, sampling=SamplingParams(6), chunk=chunk, **given) == generate(
        model, sampling=SamplingParams(6), **given
    )


def test_short_prompts_decode_during_chunked_prefill():
    model = make(DECODERS["rotary"])
    events = list(decode(model, [[1] * 9, [2]], SamplingParams(4), prefill_chunk=3))
    first = next(event for event in events if isinstance(event, Token))
    passes = [event for event in events if isinstance(event, Pass)]
    assert first.choice == 1
    assert [{n: new for n, new, _ in one.sequences} for one in passes[:3]] == [{0: 3, 1: 1}] * 3
    assert passes[0].sequences == ((0, 3, 0), (1, 1, 0))


def test_equal_prompts_are_prefilled_once():
    model = make(DECODERS["rotary"], double=True)
    sampling = SamplingParams(5, 1.0, seed=4)
    events = list(decode(model, [[5, 9, 2]] * 3 + [[5, 9]], sampling))
    passes = [event for event in events if isinstance(event, Pass)]
    assert passes[0].sequences == ((0, 3, 0), (3, 2, 0))
    assert passes[1].sequences == ((0, 1, 3), (1, 1, 3), (2, 1, 3), (3, 1, 2))
    alone = [generate(model, [[5, 9, 2]], replace(sampling, seed=4 + row))[0] for row in range(3)]
    assert generate(model, [[5, 9, 2]] * 3, sampling) == alone


def agree(model, prompts, seed):
    """True if cached decoding with a random prefill chunk equals uncached decoding."""
    draw = torch.Generator().manual_seed(seed)
    chunk = int(torch.randint(1, 9, (), generator=draw))
    cached = generate(model, prompts, SamplingParams(6), chunk=chunk)
    return cached == generate(model, prompts, SamplingParams(6), cached=False)


def some_prompts(count, seed):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 24, (count,), generator=draw).tolist()
    return [torch.randint(1, 61, (length,), generator=draw).tolist() for length in lengths]


@pytest.fixture
def poisoned(monkeypatch):
    """Fill the unused capacity of KV caches with NaN, so that any use of it is detected."""
    grow = LayerKVCache._grow

    def grow_poisoned(self, end, key, value):
        grow(self, end, key, value)
        self.keys[:, :, self.length :] = torch.nan
        self.values[:, :, self.length :] = torch.nan

    monkeypatch.setattr(LayerKVCache, "_grow", grow_poisoned)


@pytest.mark.parametrize("name", ["learned", "rotary", "window", "alibi", "grouped"])
def test_cached_equals_uncached_with_nan_in_unused_capacity(name, poisoned):
    model = make(DECODERS[name], double=True)
    for seed in range(5):
        assert agree(model, some_prompts(2, seed), seed)


@pytest.mark.slow
def test_cached_equals_uncached_for_a_thousand_prompts(poisoned):
    model = make(DECODERS["rotary"], double=True)
    for seed in range(125):
        assert agree(model, some_prompts(8, seed), seed)


def test_a_cache_exposing_unused_capacity_would_be_detected(poisoned, monkeypatch):
    """The inverse: a cache that returns one position too many."""
    extend = LayerKVCache.extend

    def extend_too_far(self, key, value):
        extend(self, key, value)
        end = self.length + 1
        return self.keys[:, :, :end], self.values[:, :, :end]

    monkeypatch.setattr(LayerKVCache, "extend", extend_too_far)
    model = make(DECODERS["nowhere"], double=True)
    with pytest.raises((AssertionError, RuntimeError, InvalidInput)):
        assert agree(model, some_prompts(2, 1), 1)


# Errors of one sequence that leave the others alone.


def final_events(events):
    return {event.choice: event for event in events if isinstance(event, Ended)}


def test_an_invalid_prompt_does_not_affect_the_others():
    model = make(DECODERS["learned"])
    good = generate(model, [[5, 9, 2]], SamplingParams(4))[0]
    events = list(decode(model, [[5, 9, 2], [], [61], [-1], [1] * 65], SamplingParams(4)))
    assert [event.sampled.id for event in events if isinstance(event, Token)] == good
    last = final_events(events)
    assert last[0].reason == "length"
    assert {n: e.reason for n, e in last.items() if n} == dict.fromkeys((1, 2, 3, 4), "error")
    messages = [last[n].error.message for n in (1, 2, 3, 4)]
    assert "prompt is empty" in messages[0]
    assert "no token 61" in messages[1]
    assert "no token -1" in messages[2]
    assert "has 65 tokens; this model reads at most 64" in messages[3]


def test_an_empty_prompt_starts_with_bos():
    model = make(DECODERS["rotary"])
    model.config = replace(model.config, special=replace(model.config.special_tokens, begin=7))
    assert generate(model, [[]], SamplingParams(5)) == generate(model, [[7]], SamplingParams(5))


def test_truncation_keeps_the_last_tokens():
    model = make(DECODERS["learned"])
    text = some_ids(1, 90).tolist()[0]
    generated = generate(model, [text], SamplingParams(10), long="last")[0]
    assert len(generated) == 10
    assert generated == generate(model, [text[-55:]], SamplingParams(10))[0]
    assert len(generate(model, [text], SamplingParams(1000), long="last")[0]) == 64


class Sick(torch.nn.Module):
    """A model whose logits become NaN after the token 9, for that sequence alone."""

    def __init__(self, model):
        super().__init__()
        self.inner, self.config, self.reads_source = model, model.config, False

    device = property(lambda self: torch.device("cpu"))

    def start(self, **how):
        return self.inner.new_state(**how)

    def read(self, texts, memories, **how):
        logits = self.inner.forward_varlen(texts, memories, **how)
        return [torch.full_like(row, torch.nan) if 9 in ids else row for ids, row in zip(texts, logits, strict=True)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_logits_end_only_their_sequence(temperature):
    model = make(DECODERS["rotary"])
    prompts, sampling = [[5, 3], [9], [4]], SamplingParams(6, temperature, seed=1)
    events = list(decode(Sick(model), prompts, sampling))
    last = final_events(events)
    assert (last[1].reason, last[1].num_tokens) == ("error", 0)
    assert isinstance(last[1].error, NoValidToken)
    for row in (0, 2):
        got = [e.sampled.id for e in events if isinstance(e, Token) and e.choice == row]
        whole = generate(model, [prompts[row]], replace(sampling, seed=1 + row))[0]
        assert got == whole[: whole.index(9) + 1 if 9 in whole else None]
    with pytest.raises(NoValidToken):
        generate(Sick(model), prompts, sampling)


def test_without_the_check_nan_would_be_sampled(monkeypatch):
    from peasy.generation import sampling

    monkeypatch.setattr(sampling, "_argmax_finite", lambda scores: int(scores.argmax()))
    events = list(decode(Sick(make(DECODERS["rotary"])), [[9]], SamplingParams(1)))
    assert final_events(events)[0].reason == "length"


def test_encoder_decoder_models_need_a_source():
    model = make(SOURCED["both"])
    events = list(decode(model, None, SamplingParams(3), source=[[4, 8], [], [99]]))
    last = final_events(events)
    assert last[0].error is None
    assert "needs a source" in last[1].error.message
    assert "no token 99" in last[2].error.message


# Text: whole characters, without stop strings.


@pytest.fixture(scope="module")
def words():
    return train_tokenizer(["the pizza came out of the oven, naïve café 日本語 🍕🍕"] * 9, "bpe", 300)


class Script(torch.nn.Module):
    """A model that generates the ids of a script, whatever its input."""

    reads_source = False
    device = property(lambda self: torch.device("cpu"))

    def __init__(self, ids, vocabulary):
        super().__init__()
        self.ids, self.config = ids, preset("gpt-tiny", vocabulary=vocabulary)
        self.vocabulary = vocabulary

    def start(self, **how):
        return [0]

    def read(self, texts, memories, **how):
        all_logits = []
        for state in memories:
            logits = torch.zeros(self.vocabulary)
            logits[self.ids[state[0]]] = 9.0
            state[0] += 1
            all_logits.append(logits)
        return all_logits


def script_events(words, text, **how):
    ids = words.ids([text])[0]
    events = list(decode(Script(ids, len(words)), [[1]], SamplingParams(len(ids), **how), tokenizer=words))
    pieces = [event.text for event in events if isinstance(event, Token | Ended)]
    return pieces, final_events(events)[0]


def test_text_never_contains_partial_characters(words):
    text = "naïve café 日本語 🍕 ok"
    pieces, last = script_events(words, text)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert last.reason == "length"
    assert len(words.ids(["日"])[0]) > 1 or len(words.ids(["🍔"])[0]) > 1


@pytest.mark.parametrize("cut", range(1, 18))
def test_stop_strings_are_removed_wherever_they_start(words, cut):
    text = "the pizza came out of the oven"
    stop = text[cut : cut + 5]
    pieces, last = script_events(words, text, stop=("zzz", stop))
    assert "".join(pieces) == text[: text.index(stop)]
    assert last.reason == "stop"


def test_partial_matches_of_stop_strings_are_released(words):
    pieces, last = script_events(words, "the pizza came out", stop=("came in", "outside"))
    assert "".join(pieces) == "the pizza came out"
    assert last.reason == "length"


def test_stop_strings_need_a_tokenizer():
    with pytest.raises(InvalidInput, match="need a tokenizer"):
        generate(make(DECODERS["rotary"]), [[1]], SamplingParams(3, stop=("x",)))


def test_events_carry_log_probabilities(words):
    model = build(preset("gpt-tiny", vocabulary=len(words)), seed=1)
    events = list(decode(model, [[5, 9]], SamplingParams(3, logprobs=4), tokenizer=words))
    tokens = [event for event in events if isinstance(event, Token)]
    with torch.inference_mode():
        expected = torch.log_softmax(model(torch.tensor([[5, 9]]))[0, -1].double(), -1)
    assert tokens[0].sampled.logprob == pytest.approx(float(expected.max()), abs=1e-5)
    assert [c.id for c in tokens[0].sampled.top_logprobs] == expected.topk(4).indices.tolist()


def test_sampling_parameters_per_sequence():
    model = make(DECODERS["rotary"], double=True)
    ways = [SamplingParams(3), SamplingParams(6, 1.0, seed=5)]
    together = generate(model, [[5, 9], [5, 9]], ways)
    assert together == [generate(model, [[5, 9]], [way])[0] for way in ways]
    with pytest.raises(InvalidInput, match="2 sequences but 1 sampling parameters"):
        generate(model, [[5], [9]], ways[:1])


def test_a_shared_random_generator_would_be_detected(monkeypatch):
    """The inverse of batch independence: one random generator for all sequences."""
    import random

    shared = random.Random(0)
    plain = Sampler.__init__

    def init(self, sampling, prompt=()):
        plain(self, sampling, prompt)
        self.chance = shared

    model = make(DECODERS["rotary"])
    alone = [generate(model, [prompt], SamplingParams(8, 1.0, seed=3 + row))[0] for row, prompt in enumerate(PROMPTS)]
    assert generate(model, PROMPTS, SamplingParams(8, 1.0, seed=3)) == alone
    monkeypatch.setattr(decode_module, "Sampler", type("Shared", (Sampler,), {"__init__": init}))
    assert generate(model, PROMPTS, SamplingParams(8, 1.0, seed=3)) != alone
