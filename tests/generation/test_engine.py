"""Engine: output is independent of the batch, limits hold, and an error ends only its own request."""

import gc
import random
import weakref
from collections import deque

import pytest
import torch
from tests.generation.tiny_models import KINDS, alone, choices_alone, final_events, model_of, run, token_ids

from peasy.errors import InvalidInput, ResourceUnavailable
from peasy.generation.engine import Engine
from peasy.generation.limits import PAGE_SIZE, EngineLimits
from peasy.generation.request import Ended, Overloaded, Request, Token
from peasy.generation.sampling_params import SamplingParams

SMALL = EngineLimits(
    max_num_seqs=5,
    prefill_chunk=PAGE_SIZE,
    max_queued_requests=30,
    kv_cache_bytes=40_000_000,
    prefix_cache_bytes=30_000,
)
SHARED = tuple(random.Random(0).randrange(1, 7) for _ in range(3 * PAGE_SIZE))


def some_request(rng: random.Random, sourced: bool) -> Request:
    """Return a random request; prompts often share a prefix, sources are often equal."""
    prompt = SHARED[: rng.choice([1, 3, PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 1, 2 * PAGE_SIZE + 5])]
    prompt += tuple(rng.randrange(1, 7) for _ in range(rng.randrange(4)))
    sampling = SamplingParams(
        rng.randrange(1, 9), rng.choice([0.0, 0.9]), seed=rng.randrange(3),
        repetition_penalty=rng.choice([1.0, 1.3]),
    )  # fmt: skip
    source = tuple(rng.choice([(4, 8, 15, 16), (23, 42), (5,)])) if sourced else None
    return Request(prompt[:10] if sourced else prompt, sampling, source, n=rng.choice([1, 1, 1, 3]))


def run_randomly(kind: str, seed: int, limits: EngineLimits = SMALL) -> tuple[Engine, int]:
    """Submit, read and cancel requests at random; compare each with its output alone."""
    rng, engine = random.Random(seed), Engine(model_of(kind), limits=limits)
    engine.max_pending_events = 6
    pending = [some_request(rng, engine.model.is_encoder_decoder) for _ in range(12)]
    running, events, checked = {}, {}, 0
    while pending or not engine.idle:
        for _ in range(rng.randrange(3)):
            if pending:
                response = engine.submit(pending.pop())
                running[response], events[response] = response.request, []
        if running and rng.random() < 0.05:
            rng.choice(list(running)).close()
        engine.step()
        for response in running:
            if rng.random() < 0.5:
                events[response] += response.pop_all()
    for response, request in running.items():
        events[response] += response.pop_all()
        for choice, expected in enumerate(choices_alone(kind, request)):
            generated, end = token_ids(events[response], choice), final_events(events[response])[choice]
            assert generated == (expected if end.reason == "length" else expected[: end.num_tokens]), (
                kind,
                seed,
                request,
            )
            assert end.reason in ("length", "cancelled")
            checked += end.reason == "length"
    assert engine.running == []
    assert engine.reserved_bytes == {}
    assert engine.prefix_cache.nbytes <= limits.prefix_cache_bytes
    return engine, checked


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_output_does_not_depend_on_the_batch(kind, seed):
    engine, checked = run_randomly(kind, seed)
    assert checked > 8
    assert engine.stats.prefix_cache_hit_tokens > 0 or engine.model.is_encoder_decoder


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_output_does_not_depend_on_the_batch_at_length(kind):
    assert sum(run_randomly(kind, seed)[1] for seed in range(100, 160)) > 600


def test_a_prefix_cache_keyed_by_length_would_be_detected(monkeypatch):
    """The inverse: were pages found by their length alone, outputs would differ."""
    from peasy.generation.prefix_cache import PrefixCache

    def find_by_length(self, chain, ids):
        return next((page for page in self.pages.values() if len(page.key[1]) == len(ids)), None)

    monkeypatch.setattr(PrefixCache, "find", find_by_length)
    with pytest.raises(AssertionError):
        deque((run_randomly("decoder", seed) for seed in range(8)), maxlen=0)


def test_decoding_continues_during_prefill():
    engine = Engine(model_of("decoder"), limits=EngineLimits(prefill_chunk=PAGE_SIZE))
    decoding = engine.submit(Request((1, 2), SamplingParams(max_tokens=50)))
    engine.step()
    prefilling = engine.submit(Request(SHARED, SamplingParams(max_tokens=3)))
    for step in range(2, 5):
        engine.step()
        assert len(token_ids(decoding.pop_all())) == (2 if step == 2 else 1)
        # three pages in three steps, the first token with the last
        assert len(token_ids(prefilling.pop_all())) == (step == 4)


def test_a_shared_prefix_is_prefilled_once():
    engine = Engine(model_of("decoder"), limits=EngineLimits(prefill_chunk=2 * PAGE_SIZE))
    responses = [engine.submit(Request((*SHARED, tail), SamplingParams(max_tokens=3))) for tail in range(1, 7)]
    run(engine)
    assert [token_ids(response.pop_all()) for response in responses] == [
        alone("decoder", (*SHARED, t), None, 3) for t in range(1, 7)
    ]
    assert engine.stats.prompt_tokens == len(SHARED) + 6
    assert [response.num_cached_tokens for response in responses] == [0] + [len(SHARED)] * 5
    assert engine.stats.prefix_hits == 5


def test_generated_tokens_are_cached_too():
    """The next turn of a chat starts with the previous prompt and response."""
    engine = Engine(model_of("decoder"))
    first = engine.submit(Request(SHARED[: PAGE_SIZE - 4], SamplingParams(max_tokens=10)))
    run(engine)
    again = engine.submit(
        Request((*SHARED[: PAGE_SIZE - 4], *token_ids(first.pop_all()), 3, 4), SamplingParams(max_tokens=5))
    )
    run(engine)
    assert again.num_cached_tokens == PAGE_SIZE
    assert token_ids(again.pop_all()) == alone("decoder", again.request.prompt, None, 5)


def test_choices_are_forks_of_one_prefill():
    engine = Engine(model_of("decoder"))
    response = engine.submit(Request(SHARED, SamplingParams(6, 1.0, seed=4), n=4))
    run(engine)
    events = response.pop_all()
    choices = [token_ids(events, choice) for choice in range(4)]
    assert choices == [alone("decoder", SHARED, None, 6, temperature=1.0, seed=4 + i) for i in range(4)]
    assert len({tuple(ids) for ids in choices}) > 1
    assert engine.stats.prompt_tokens == len(SHARED)


def test_a_full_queue_raises_overloaded_with_retry_after():
    engine = Engine(
        model_of("decoder"), limits=EngineLimits(max_num_seqs=1, max_queued_requests=2, max_queued_tokens=100)
    )
    kept = [engine.submit(Request((1,), SamplingParams(max_tokens=10))) for _ in range(2)]
    with pytest.raises(Overloaded, match="queue is full: 2 requests with 22 tokens") as refused:
        engine.submit(Request((1,), SamplingParams(max_tokens=10)))
    assert refused.value.retry_after >= 1
    assert refused.value.hint == "Try again in 1 s."
    engine.step()
    kept.append(engine.submit(Request((1,), SamplingParams(max_tokens=60))))  # one has left the queue
    with pytest.raises(Overloaded):
        engine.submit(Request((1,), SamplingParams(max_tokens=60)))
    run(engine)
    assert [final_events(response.pop_all())[0].reason for response in kept] == ["length"] * 3
    assert engine.stats.refused == 2


def test_retry_after_follows_the_queued_tokens():
    engine = Engine(model_of("decoder"), limits=EngineLimits(max_num_seqs=1, max_queued_tokens=1000))
    engine.stats.tokens_per_second = 10.0
    engine.submit(Request((1,), SamplingParams(max_tokens=998)))
    with pytest.raises(Overloaded) as refused:
        engine.submit(Request((1,), SamplingParams(max_tokens=100)))
    assert refused.value.retry_after == pytest.approx(10.0)


def test_kv_cache_stays_within_its_budget():
    """Requests wait until their state fits; running ones never hold more than was reserved."""
    from peasy.generation.footprint import tensor_bytes

    model = model_of("window")
    per_sequence = Engine(model).footprint.max_bytes(300)
    engine = Engine(model, limits=EngineLimits(kv_cache_bytes=2 * per_sequence + 1, prefix_cache_bytes=0))
    responses = [engine.submit(Request(SHARED * 2, SamplingParams(max_tokens=300 - 2 * len(SHARED)))) for _ in range(4)]
    peak = 0
    while engine.step():
        assert len(engine.running) <= 2
        held = sum(tensor_bytes(sequence.state) for sequence in engine.running)
        assert held <= sum(engine.reserved_bytes.values()) <= engine.limits.kv_cache_bytes
        peak = max(peak, held)
    assert peak > per_sequence / 4
    assert {final_events(response.pop_all())[0].reason for response in responses} == {"length"}
    with pytest.raises(ResourceUnavailable, match="bytes of memory; the engine has"):
        engine.submit(Request((1,), SamplingParams(max_tokens=100_000), n=9))


@pytest.mark.parametrize("when", [0, 1, 2, 5])
def test_cancelling_frees_memory_before_the_next_pass(when, monkeypatch):
    """Cancel while queued, during prefill and while decoding."""
    engine = Engine(model_of("decoder"), limits=EngineLimits(prefill_chunk=PAGE_SIZE, prefix_cache_bytes=0))
    response = engine.submit(Request(SHARED, SamplingParams(max_tokens=50), n=2))
    for _ in range(when):
        engine.step()
    states = [weakref.ref(sequence.state) for sequence in engine.running if sequence.leader is None]
    assert bool(states) == (when > 0)
    response.close()
    monkeypatch.setattr(engine.model, "forward_varlen", None)  # a pass would fail
    assert not engine.step()
    gc.collect()
    assert not any(state() for state in states)
    assert engine.reserved_bytes == {}
    assert [end.reason for end in final_events(response.pop_all()).values()] == ["cancelled"] * 2


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_timeouts_apply_while_queued_prefilling_and_decoding():
    clock = Clock()
    engine = Engine(model_of("decoder"), limits=EngineLimits(max_num_seqs=2, prefill_chunk=PAGE_SIZE), clock=clock)
    requests = (((1,), 5), (SHARED, 3), ((1,), 4))
    decoding, prefilling, queued = (
        engine.submit(Request(prompt, SamplingParams(max_tokens=100), timeout=seconds)) for prompt, seconds in requests
    )
    engine.step()
    clock.now += 3.5
    engine.step()
    assert final_events(prefilling.pop_all())[0].reason == "timeout"
    assert not final_events(decoding.pop_all())
    clock.now += 1
    engine.step()
    assert final_events(queued.pop_all())[0].reason == "timeout"
    clock.now += 1
    engine.step()
    assert final_events(decoding.pop_all())[0].reason == "timeout"
    assert engine.idle


def inject_fault(monkeypatch, model, corrupt, when):
    """Make the forward pass fail for sequences that contain the token 60."""
    original = model.forward_varlen

    def forward_varlen(sequences, states, **options):
        all_logits = original(sequences, states, **options)
        return [
            corrupt(logits) if 60 in ids and when() else logits
            for ids, logits in zip(sequences, all_logits, strict=True)
        ]

    monkeypatch.setattr(model, "forward_varlen", forward_varlen)


def raising(logits):
    raise RuntimeError("a pass broke")


@pytest.mark.parametrize("kind", ["decoder", "window", "lstm", "ngram", "convolution"])
@pytest.mark.parametrize("corrupt", [lambda logits: logits * torch.nan, raising])
def test_an_error_ends_only_its_own_request(kind, corrupt, monkeypatch):
    engine = Engine(model_of(kind), limits=EngineLimits(prefill_chunk=PAGE_SIZE))
    inject_fault(monkeypatch, engine.model, corrupt, lambda: True)
    requests = [Request((5, 9, 2)), Request((*SHARED[:40], 60), n=2), Request(SHARED[:50], SamplingParams(20, 0.8))]
    responses = [engine.submit(request) for request in requests]
    run(engine)
    good, bad, other = (response.pop_all() for response in responses)
    assert token_ids(good) == alone(kind, requests[0].prompt, None, 20)
    assert token_ids(other) == alone(kind, requests[2].prompt, None, 20, temperature=0.8, seed=0)
    assert [end.reason for end in final_events(bad).values()] == ["error"] * 2
    assert engine.stats.finished == {"length": 2, "error": 2}
    assert engine.idle


def test_without_the_retry_one_error_would_reach_the_caller(monkeypatch):
    """The inverse: a failing pass would reach the caller."""

    def execute_without_retry(self, scheduled):
        self._forward_pass([row for rows in scheduled for row in rows])
        for rows in scheduled:
            self._advance(rows)

    monkeypatch.setattr(Engine, "_execute", execute_without_retry)
    engine = Engine(model_of("decoder"))
    inject_fault(monkeypatch, engine.model, raising, lambda: True)
    for prompt in ((1,), (60,)):
        engine.submit(Request(prompt))
    with pytest.raises(RuntimeError, match="a pass broke"):
        engine.step()


def test_reported_errors_keep_no_state_alive(monkeypatch):
    engine = Engine(model_of("decoder"), limits=EngineLimits(prefix_cache_bytes=0))
    inject_fault(monkeypatch, engine.model, raising, lambda: len(engine.running[0].ids) > 3)
    response = engine.submit(Request((1, 60)))
    engine.step()
    state = weakref.ref(engine.running[0].state)
    engine.running[0].ids.extend([60, 60])
    run(engine)
    gc.collect()
    assert state() is None
    assert "RuntimeError: a pass broke" in str(final_events(response.pop_all())[0].error)


def test_finished_requests_leave_nothing_in_memory():
    engine = Engine(model_of("decoder"))
    references = []
    for seed in range(3):
        response = engine.submit(Request(SHARED, SamplingParams(4, 1.0, seed), n=3))
        for _ in range(3):
            engine.step()
            references += [weakref.ref(item) for seq in engine.running for item in (seq, seq.state) if item]
        run(engine)
        response.pop_all()
    gc.collect()
    assert len(references) > 10
    assert not [ref for ref in references if ref() is not None]


def test_a_slow_client_pauses_only_its_request_and_times_out():
    clock = Clock()
    engine = Engine(model_of("decoder"), limits=EngineLimits(slow_client_timeout=10), clock=clock)
    engine.max_pending_events = 4
    slow, quick = (engine.submit(Request((1,), SamplingParams(max_tokens=12))) for _ in range(2))
    events = []
    for _ in range(20):
        engine.step()
        events += quick.pop_all()
    assert token_ids(events) == alone("decoder", (1,), None, 12)
    first = slow.pop_all()
    assert len(first) == 4
    for _ in range(20):
        engine.step()
    clock.now += 11
    engine.step()
    rest = slow.pop_all()
    assert token_ids(first + rest) == alone("decoder", (1,), None, 12)[:8]
    assert final_events(rest)[0].reason == "slow_client"
    assert engine.idle


def test_a_slow_client_that_keeps_reading_gets_everything():
    clock = Clock()
    engine = Engine(model_of("decoder"), limits=EngineLimits(slow_client_timeout=10), clock=clock)
    engine.max_pending_events = 4
    slow, events = engine.submit(Request((1,), SamplingParams(max_tokens=12))), []
    while not engine.idle:
        engine.step()
        engine.step()
        clock.now += 8
        if slow.is_full:
            events += slow.pop_all()
    assert token_ids(events + slow.pop_all()) == alone("decoder", (1,), None, 12)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(()), "prompt is empty"),
        (Request((61,)), "no token 61: the vocabulary has ids 0 to 60"),
        (Request((1, -1)), "no token -1"),
        (Request((1,), source=(1,)), "takes no source"),
        (Request((1,), n=65), "n is 65"),
        (Request((1,), SamplingParams(stop=("x",))), "need a tokenizer"),
    ],
)
def test_invalid_requests_are_rejected_at_submission(request_, message):
    engine = Engine(model_of("decoder"))
    with pytest.raises(InvalidInput, match=message):
        engine.submit(request_)
    assert engine.idle
    assert engine.stats.refused == 1
    assert engine.stats.submitted == 0


def test_a_timeout_is_a_number_above_zero():
    for wrong in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="timeout is"):
            Request((1,), timeout=wrong)


def test_stats_count_requests_and_tokens():
    engine = Engine(model_of("decoder"))
    response = engine.submit(Request(SHARED, SamplingParams(max_tokens=5), n=2))
    assert engine.snapshot()["queued_requests"] == 1
    assert engine.snapshot()["queued_tokens"] == len(SHARED) + 10
    engine.step()
    now = engine.snapshot()
    assert (now["running_sequences"], now["queued_requests"]) == (2, 0)
    assert now["reserved_bytes"] == 2 * engine.footprint.max_bytes(len(SHARED) + 5)
    run(engine)
    now = engine.snapshot()
    assert (now["prompt_tokens"], now["generated_tokens"], now["steps"]) == (len(SHARED), 10, 5)
    assert now["finished"] == {"length": 2}
    assert now["step_seconds"] >= now["longest_step"] > 0
    assert sum(isinstance(event, Token | Ended) for event in response.pop_all()) == 12
