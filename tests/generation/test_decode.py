"""Decoding loop: cached equals uncached, batched equals single, greedy takes the argmax, seeds determine samples."""

from dataclasses import replace

import pytest
import torch
from tests.models.tiny_models import BASELINES, DECODERS, ENCODERS, GENERATIVE_MODELS, SEQ2SEQ_MODELS, make, some_ids

from peasy.errors import InvalidInput
from peasy.generation import sequence as sequence_module
from peasy.generation.admission import long_text_note
from peasy.generation.decode import Pass, decode, generate
from peasy.generation.request import Ended, Token
from peasy.generation.sampling import NoValidToken, Sampler
from peasy.generation.sampling_params import SamplingParams
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn.kv_cache import LayerKVCache
from peasy.tokenization import train_tokenizer

PROMPTS = [[5, 9, 2], [7], [3, 3, 8, 1, 4, 9]]
SOURCES = [[4, 8, 15, 16], [23], [42, 4, 8]]


def inputs_for(model):
    return {"source": SOURCES} if model.is_encoder_decoder else {"prompts": PROMPTS}


def single_input(inputs, row):
    return {key: [value[row]] for key, value in inputs.items()}


@pytest.mark.parametrize("name", GENERATIVE_MODELS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_cached_equals_uncached(name, temperature):
    model = make(GENERATIVE_MODELS[name], double=True)
    sampling = SamplingParams(12, temperature, seed=7)
    inputs = inputs_for(model)
    assert generate(model, sampling=sampling, **inputs) == generate(model, sampling=sampling, use_cache=False, **inputs)


@pytest.mark.parametrize("name", GENERATIVE_MODELS)
def test_batched_decoding_equals_single_sequences(name):
    model = make(GENERATIVE_MODELS[name], double=True)
    inputs = inputs_for(model)
    together = generate(model, sampling=SamplingParams(10, 0.9, seed=3), **inputs)
    for row, ids in enumerate(together):
        assert generate(model, sampling=SamplingParams(10, 0.9, seed=3 + row), **single_input(inputs, row)) == [ids]


@pytest.mark.parametrize("name", DECODERS | BASELINES)
def test_greedy_takes_the_argmax(name):
    model = make((DECODERS | BASELINES)[name], double=True)
    ids = list(PROMPTS[0])
    for new in generate(model, [ids], SamplingParams(8))[0]:
        with torch.inference_mode():
            assert new == int(model(torch.tensor([ids]))[0, -1].argmax())
        ids.append(new)


def test_tokens_with_probability_zero_are_never_sampled():
    model = make(DECODERS["learned-offset"])
    with torch.no_grad():
        model.lm_head.bias[::2] = -torch.inf
    samples = generate(model, [[5]] * 64, SamplingParams(20, 5.0))
    assert all(new % 2 for ids in samples for new in ids)


def test_eos_ends_only_its_own_sequence():
    model = make(DECODERS["rotary"])
    free = generate(model, PROMPTS, SamplingParams(15))
    end = free[1][4]
    model.config = replace(model.config, special_tokens=replace(model.config.special_tokens, eos=(end,)))
    for ids, unlimited in zip(generate(model, PROMPTS, SamplingParams(15)), free, strict=True):
        length = unlimited.index(end) + 1 if end in unlimited else 15
        assert ids == unlimited[:length]


def test_closing_the_iterator_stops_decoding():
    model = make(DECODERS["rotary"])
    events = decode(model, PROMPTS, SamplingParams(1000))
    assert isinstance(next(events), Pass)
    assert next(events).sampled.id >= 0
    events.close()
    assert list(events) == []


def test_the_seed_determines_the_output():
    model = make(DECODERS["rotary"])
    first, same, other = (generate(model, PROMPTS, SamplingParams(20, 1.0, seed)) for seed in (1, 1, 2))
    assert first == same != other


def test_missing_prompts_are_rejected():
    model = make(DECODERS["rotary"])
    for prompts in (None, [], [[1], []]):
        with pytest.raises(InvalidInput, match="prompt is empty"):
            generate(model, prompts)
    with pytest.raises(InvalidInput, match="3 sources and 1 prompts"):
        generate(make(SEQ2SEQ_MODELS["seq2seq"]), [[1]], source=SOURCES)
    with pytest.raises(InvalidInput, match="cannot generate text"):
        generate(make(ENCODERS["encoder"]), [[1]])
    with pytest.raises(InvalidInput, match="temperature is -1"):
        SamplingParams(temperature=-1.0)


@pytest.mark.parametrize("use_cache", [True, False])
def test_learned_positions_limit_the_length(use_cache):
    model = make(DECODERS["learned"])
    generated = generate(model, some_ids(2, 60).tolist(), SamplingParams(20), use_cache=use_cache)
    assert [len(ids) for ids in generated] == [5, 5]
    with pytest.raises(InvalidInput, match="has 65 tokens; this model reads at most 64"):
        generate(model, some_ids(1, 65).tolist(), SamplingParams(20), use_cache=use_cache)


def test_inference_mode_does_not_leak_between_steps():
    for _ in decode(make(DECODERS["rotary"]), PROMPTS, SamplingParams(3)):
        assert not torch.is_inference_mode_enabled()


def test_no_gradients_are_kept():
    model = make(DECODERS["rotary"])
    generate(model, some_ids(1, 5).tolist(), SamplingParams(3))
    assert all(weight.grad is None for weight in model.parameters())


# Prefill: in chunks, once for shared prompts, with NaN in unused capacity.


@pytest.mark.parametrize("name", GENERATIVE_MODELS)
@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_chunked_prefill_equals_full_prefill(name, chunk):
    model = make(GENERATIVE_MODELS[name], double=True)
    inputs = inputs_for(model)
    assert generate(model, sampling=SamplingParams(6), prefill_chunk=chunk, **inputs) == generate(
        model, sampling=SamplingParams(6), **inputs
    )


def test_short_prompts_decode_during_chunked_prefill():
    model = make(DECODERS["rotary"])
    events = list(decode(model, [[1] * 9, [2]], SamplingParams(4), prefill_chunk=3))
    first = next(event for event in events if isinstance(event, Token))
    passes = [event for event in events if isinstance(event, Pass)]
    assert first.choice == 1
    # Beside the first token of the short prompt, as much of the long one; then its whole budget.
    computed = [{n: new for n, new, _ in forward.sequences} for forward in passes[:3]]
    assert computed == [{0: 1, 1: 1}, {0: 3, 1: 1}, {0: 3, 1: 1}]
    assert passes[0].sequences == ((0, 1, 0), (1, 1, 0))


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
    generator = torch.Generator().manual_seed(seed)
    chunk = int(torch.randint(1, 9, (), generator=generator))
    cached = generate(model, prompts, SamplingParams(6), prefill_chunk=chunk)
    return cached == generate(model, prompts, SamplingParams(6), use_cache=False)


def some_prompts(count, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 24, (count,), generator=generator).tolist()
    return [torch.randint(1, 61, (length,), generator=generator).tolist() for length in lengths]


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
    model = make(DECODERS["no-position"], double=True)
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
    model.config = replace(model.config, special_tokens=replace(model.config.special_tokens, bos=7))
    assert generate(model, [[]], SamplingParams(5)) == generate(model, [[7]], SamplingParams(5))


def test_a_cut_prompt_keeps_its_last_tokens():
    model = make(DECODERS["learned"])
    text = some_ids(1, 90).tolist()[0]
    generated = generate(model, [text], SamplingParams(10), long="cut")[0]
    assert len(generated) == 10
    assert generated == generate(model, [text[-55:]], SamplingParams(10))[0]
    assert len(generate(model, [text], SamplingParams(1000), long="cut")[0]) == 64


@pytest.mark.parametrize("name", ["rotary", "learned"])
def test_the_context_length_holds_for_every_kind_of_position(name):
    """A rotary model could compute more positions, but was not trained for them."""
    config = DECODERS[name]
    model, limit = make(config), config.max_seq_len
    prompt = some_ids(1, limit + 6).tolist()[0]
    with pytest.raises(InvalidInput, match=f"{limit + 6} tokens; this model reads at most {limit}") as refused:
        generate(model, [prompt], SamplingParams(3))
    assert "long=cut" in refused.value.hint
    assert ("long=extend" in refused.value.hint) == (name != "learned")
    assert len(generate(model, [prompt[:limit]], SamplingParams(30))[0]) == 1  # the text ends at the limit
    assert len(generate(model, [prompt], SamplingParams(3), long="cut")[0]) == 3
    if name == "learned":
        with pytest.raises(InvalidInput, match="reads at most"):
            generate(model, [prompt], SamplingParams(3), long="extend")
    else:
        assert len(generate(model, [prompt], SamplingParams(3), long="extend")[0]) == 3
        assert "may go beyond" in long_text_note(model, len(prompt), 3, "extend")
    assert f"cut to its last {limit - 2}" in long_text_note(model, len(prompt), 3, "cut")
    assert long_text_note(model, 3, 3, "refuse") is None


class NanAfterNine(torch.nn.Module):
    """Model whose logits become NaN after the token 9, for that sequence alone."""

    def __init__(self, model):
        super().__init__()
        self.inner, self.config, self.is_encoder_decoder = model, model.config, False

    device = property(lambda self: torch.device("cpu"))

    def new_state(self, **options):
        return self.inner.new_state(**options)

    def forward_varlen(self, sequences, states, **options):
        logits = self.inner.forward_varlen(sequences, states, **options)
        return [
            torch.full_like(row, torch.nan) if 9 in ids else row for ids, row in zip(sequences, logits, strict=True)
        ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_logits_end_only_their_sequence(temperature):
    model = make(DECODERS["rotary"])
    prompts, sampling = [[5, 3], [9], [4]], SamplingParams(6, temperature, seed=1)
    events = list(decode(NanAfterNine(model), prompts, sampling))
    last = final_events(events)
    assert (last[1].reason, last[1].num_tokens) == ("error", 0)
    assert isinstance(last[1].error, NoValidToken)
    for row in (0, 2):
        actual = [e.sampled.id for e in events if isinstance(e, Token) and e.choice == row]
        expected = generate(model, [prompts[row]], replace(sampling, seed=1 + row))[0]
        assert actual == expected[: expected.index(9) + 1 if 9 in expected else None]
    with pytest.raises(NoValidToken):
        generate(NanAfterNine(model), prompts, sampling)


def test_without_the_check_nan_would_be_sampled(monkeypatch):
    from peasy.generation import sampling

    monkeypatch.setattr(sampling, "_argmax_finite", lambda logits: int(logits.argmax()))
    events = list(decode(NanAfterNine(make(DECODERS["rotary"])), [[9]], SamplingParams(1)))
    assert final_events(events)[0].reason == "length"


def test_encoder_decoder_models_need_a_source():
    model = make(SEQ2SEQ_MODELS["seq2seq"])
    events = list(decode(model, None, SamplingParams(3), source=[[4, 8], [], [99]]))
    last = final_events(events)
    assert last[0].error is None
    assert "needs a source" in last[1].error.message
    assert "no token 99" in last[2].error.message


# Text: whole characters, without stop strings.


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["the pizza came out of the oven, naïve café 日本語 🍕🍕"] * 9, "bpe", 300)


class ScriptedModel(torch.nn.Module):
    """Model that generates the ids of a script, whatever its input."""

    is_encoder_decoder = False
    device = property(lambda self: torch.device("cpu"))

    def __init__(self, ids, vocab_size):
        super().__init__()
        self.ids, self.config = ids, preset("gpt-tiny", vocab_size=vocab_size)

    def new_state(self, **options):
        return [0]

    def forward_varlen(self, sequences, states, **options):
        all_logits = []
        for state in states:
            logits = torch.zeros(self.config.vocab_size)
            logits[self.ids[state[0]]] = 9.0
            state[0] += 1
            all_logits.append(logits)
        return all_logits


def script_events(tokenizer, text, **options):
    ids = tokenizer.encode_batch_ids([text])[0]
    model, sampling = ScriptedModel(ids, len(tokenizer)), SamplingParams(len(ids), **options)
    events = list(decode(model, [[1]], sampling, tokenizer=tokenizer))
    pieces = [event.text for event in events if isinstance(event, Token | Ended)]
    return pieces, final_events(events)[0]


def test_text_never_contains_partial_characters(tokenizer):
    text = "naïve café 日本語 🍕 ok"
    pieces, last = script_events(tokenizer, text)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert last.reason == "length"
    assert len(tokenizer.encode_batch_ids(["日"])[0]) > 1 or len(tokenizer.encode_batch_ids(["🍔"])[0]) > 1


@pytest.mark.parametrize("cut", range(1, 18))
def test_stop_strings_are_removed_wherever_they_start(tokenizer, cut):
    text = "the pizza came out of the oven"
    stop = text[cut : cut + 5]
    pieces, last = script_events(tokenizer, text, stop=("zzz", stop))
    assert "".join(pieces) == text[: text.index(stop)]
    assert last.reason == "stop"


def test_partial_matches_of_stop_strings_are_released(tokenizer):
    pieces, last = script_events(tokenizer, "the pizza came out", stop=("came in", "outside"))
    assert "".join(pieces) == "the pizza came out"
    assert last.reason == "length"


def test_stop_strings_need_a_tokenizer():
    with pytest.raises(InvalidInput, match="need a tokenizer"):
        generate(make(DECODERS["rotary"]), [[1]], SamplingParams(3, stop=("x",)))


def test_events_carry_log_probabilities(tokenizer):
    model = build(preset("gpt-tiny", vocab_size=len(tokenizer)), seed=1)
    events = list(decode(model, [[5, 9]], SamplingParams(3, logprobs=4), tokenizer=tokenizer))
    tokens = [event for event in events if isinstance(event, Token)]
    with torch.inference_mode():
        expected = torch.log_softmax(model(torch.tensor([[5, 9]]))[0, -1].double(), -1)
    assert tokens[0].sampled.logprob == pytest.approx(float(expected.max()), abs=1e-5)
    assert [c.id for c in tokens[0].sampled.top_logprobs] == expected.topk(4).indices.tolist()


def test_sampling_parameters_per_sequence():
    model = make(DECODERS["rotary"], double=True)
    params = [SamplingParams(3), SamplingParams(6, 1.0, seed=5)]
    together = generate(model, [[5, 9], [5, 9]], params)
    assert together == [generate(model, [[5, 9]], [own])[0] for own in params]
    with pytest.raises(InvalidInput, match="2 sequences but 1 sampling parameters"):
        generate(model, [[5], [9]], params[:1])


def test_a_shared_random_generator_would_be_detected(monkeypatch):
    """The inverse of batch independence: one random generator for all sequences."""
    import random

    shared = random.Random(0)
    original = Sampler.__init__

    def init(self, params, prompt=()):
        original(self, params, prompt)
        self.rng = shared

    model = make(DECODERS["rotary"])
    alone = [generate(model, [prompt], SamplingParams(8, 1.0, seed=3 + row))[0] for row, prompt in enumerate(PROMPTS)]
    assert generate(model, PROMPTS, SamplingParams(8, 1.0, seed=3)) == alone
    monkeypatch.setattr(sequence_module, "Sampler", type("Shared", (Sampler,), {"__init__": init}))
    assert generate(model, PROMPTS, SamplingParams(8, 1.0, seed=3)) != alone
