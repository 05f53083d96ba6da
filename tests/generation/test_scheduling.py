"""Fair scheduling: short requests get their first token beside any long ones, and long ones still finish."""

import math
import random

import pytest
from tests.generation.tiny_models import alone, final_events, model_of, run, token_ids

from peasy.generation import engine as engine_module
from peasy.generation import request_queue
from peasy.generation.engine import Engine
from peasy.generation.limits import PAGE_SIZE, EngineLimits
from peasy.generation.request import Request
from peasy.generation.sampling_params import SamplingParams

CHUNK = 2 * PAGE_SIZE
LIMITS = EngineLimits(prefill_chunk=CHUNK, prefix_cache_bytes=0)
LONG = tuple(random.Random(1).randrange(1, 60) for _ in range(20 * CHUNK))
SHORT = Request((5, 7), SamplingParams(max_tokens=1))


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def work(engine, rows):
    """Return the work of these rows, in tokens without keys: 24 d² operations per layer, and 4 d for each key."""
    keys = sum(row.num_cached * len(row.ids) for row in rows)
    return sum(len(row.ids) for row in rows) + 4 * keys / (24 * engine.model.config.d_model)


def steps_until_first_token(engine, request):
    """Submit a request and step until its first token; return the work of each step."""
    computed = []
    engine.on_pass = lambda rows, seconds: computed.append(work(engine, rows))
    response = engine.submit(request)
    while not token_ids(response.pop_all()):
        engine.step()
        assert len(computed) < 500, "no token"
    return computed


def test_short_prompt_does_not_wait_for_a_long_one():
    engine = Engine(model_of("decoder"), limits=LIMITS)
    long = engine.submit(Request(LONG, SamplingParams(max_tokens=3)))
    engine.step()
    (step,) = steps_until_first_token(engine, SHORT)
    assert 2 < step <= 4, "its step should compute little of the long prompt"
    run(engine)
    assert token_ids(long.pop_all()) == alone("decoder", LONG, None, 3)


def test_without_the_order_it_would_wait(monkeypatch):
    """The inverse: the oldest prompt first."""
    monkeypatch.setattr(engine_module, "_MAX_PASSED_OVER", 0)
    engine = Engine(model_of("decoder"), limits=LIMITS)
    engine.submit(Request(LONG))
    engine.step()
    assert len(steps_until_first_token(engine, SHORT)) > 10


@pytest.mark.parametrize("length", [1, 3, 40, CHUNK, CHUNK + 2, 3 * CHUNK])
def test_first_token_costs_at_most_three_times_the_prompt(length):
    """Beside three long prompts; every step but the last may be a full chunk that the prompt needs itself."""
    engine = Engine(model_of("decoder"), limits=LIMITS)
    for shift in range(3):
        engine.submit(Request(LONG[shift:]))
    engine.step()
    prompt = tuple(random.Random(length).randrange(1, 60) for _ in range(length))
    computed = steps_until_first_token(engine, Request(prompt, SamplingParams(max_tokens=1)))
    assert sum(computed) <= 3 * length + CHUNK


def work_until_all_have_begun(engine, prompts):
    """Submit prompts and step until each has its first token; return the work up to each first token."""
    computed, begun = [0], {}
    engine.on_pass = lambda rows, seconds: computed.append(computed[-1] + work(engine, rows))
    waiting = [engine.submit(Request(prompt, SamplingParams(max_tokens=2))) for prompt in prompts]
    while len(begun) < len(prompts):
        engine.step()
        for index, response in enumerate(waiting):
            if index not in begun and token_ids(response.pop_all()):
                begun[index] = computed[-1]
        assert len(computed) < 500, "no token"
    return sorted(begun.values())


def test_sixty_short_prompts_beside_four_long_ones():
    """As in `bench.serving mixed`, with counted work as the clock: three times the work alone, and one chunk."""
    rng = random.Random(3)
    short = [tuple(rng.randrange(1, 60) for _ in range(2 + 62 * number // 59)) for number in range(60)]
    alone_, beside = Engine(model_of("decoder"), limits=LIMITS), Engine(model_of("decoder"), limits=LIMITS)
    for shift in range(4):
        beside.submit(Request(LONG[shift:]))
    beside.step()
    pairs = zip(work_until_all_have_begun(beside, short), work_until_all_have_begun(alone_, short), strict=True)
    assert all(together <= 3 * own + CHUNK for together, own in pairs)


def longest_step_beside_decoding(engine):
    """Return the largest work of a step that computes one token of a text and continues a long prompt."""
    steps = []
    text = engine.submit(Request((5, 7), SamplingParams(max_tokens=500)))
    engine.step()
    engine.on_pass = lambda rows, seconds: steps.append(work(engine, [row for row in rows if len(row.ids) > 1]))
    long = engine.submit(Request(LONG, SamplingParams(max_tokens=1)))
    while not long.is_finished:
        assert not text.is_finished, "the long prompt starves"
        engine.step()
    return max(steps)


def test_late_chunk_of_a_long_prompt_delays_other_texts_no_more_than_an_early_one(monkeypatch):
    """Except that it computes at least a page; the inverse: chunks of so many tokens, whatever they cost."""
    model = model_of("decoder")
    page = PAGE_SIZE * (1 + len(LONG) / (6 * model.config.d_model))
    assert longest_step_beside_decoding(Engine(model, limits=LIMITS)) <= max(CHUNK, page)
    monkeypatch.setattr(Engine, "_token_cost", lambda engine, sequence: 1.0)
    assert longest_step_beside_decoding(Engine(model, limits=LIMITS)) > 1.5 * max(CHUNK, page)


def test_long_prompt_finishes_beside_an_endless_row_of_short_ones():
    """One step in four computes at least a page of it."""
    engine = Engine(model_of("decoder"), limits=LIMITS)
    long, rng, steps = engine.submit(Request(LONG, SamplingParams(max_tokens=1))), random.Random(2), 0
    while not long.is_finished:
        prompt = tuple(rng.randrange(1, 60) for _ in range(PAGE_SIZE + 9))
        engine.submit(Request(prompt, SamplingParams(max_tokens=1)))
        engine.step()
        steps += 1
        assert steps <= 4 * (len(LONG) // PAGE_SIZE + 1), "the long prompt starves"
    assert token_ids(long.pop_all()) == alone("decoder", LONG, None, 1)


@pytest.mark.parametrize("what", ["places", "memory"])
def test_short_request_starts_though_long_ones_fill_the_engine(what):
    engine = full_engine(what)
    assert len(steps_until_first_token(engine, SHORT)) <= 2
    assert engine.queue.tokens > 0, "long requests wait"


@pytest.mark.parametrize("what", ["places", "memory"])
def test_without_a_reserve_it_would_wait(monkeypatch, what):
    monkeypatch.setattr(request_queue, "_RESERVED_SHARE", math.inf)
    engine = full_engine(what)
    assert len(steps_until_first_token(engine, SHORT)) > 20


def full_engine(what):
    """Return an engine whose places or memory are taken by long requests, while more of them wait."""
    model = model_of("decoder")
    per_request = Engine(model, limits=LIMITS).footprint.max_bytes(len(LONG) + 20)
    limits = {"max_num_seqs": 8} if what == "places" else {"kv_cache_bytes": 8 * per_request}
    engine = Engine(model, limits=EngineLimits(prefill_chunk=CHUNK, prefix_cache_bytes=0, **limits))
    for shift in range(12):
        engine.submit(Request(LONG[shift:], SamplingParams(max_tokens=20)))
    engine.step()
    return engine


def test_overdue_long_request_starts_beside_an_endless_row_of_short_ones():
    clock, limits = Clock(), EngineLimits(max_num_seqs=8, prefill_chunk=CHUNK, prefix_cache_bytes=0)
    engine = Engine(model_of("decoder"), limits=limits, clock=clock)
    short = Request((5, 7), SamplingParams(max_tokens=30), n=2)
    for _ in range(8):
        engine.submit(short)
    engine.step()
    long = engine.submit(Request(LONG[: CHUNK + 1], SamplingParams(max_tokens=1)))
    steps = 0
    while not long.is_finished and steps < 400:
        steps += 1
        while len(engine.queue) < 6:
            engine.submit(short)
        engine.step()
        clock.now += 0.2
    assert final_events(long.pop_all())[0].reason == "length"
    assert steps > 20, "it was not delayed: the test shows nothing"


LONG_SOURCE = tuple(random.Random(2).randrange(1, 60) for _ in range(60))


def steps_beside_a_long_source(chunk):
    """Return how many steps a short translation and a long source take to their first tokens, begun together."""
    engine = Engine(model_of("translator"), limits=EngineLimits(prefill_chunk=chunk, prefix_cache_bytes=0))
    sampling = SamplingParams(max_tokens=3)
    responses = {"long": engine.submit(Request((), sampling, LONG_SOURCE))}
    responses["short"] = engine.submit(Request((), sampling, (5, 7)))
    first, events, step = {}, {name: [] for name in responses}, 0
    while engine.step():
        step += 1
        for name, response in responses.items():
            events[name] += response.pop_all()
            if token_ids(events[name]):
                first.setdefault(name, step)
    for name, source in (("long", LONG_SOURCE), ("short", (5, 7))):
        assert token_ids(events[name]) == alone("translator", (), source, 3)
    return first


def test_short_translation_does_not_wait_for_a_long_source():
    """A source is encoded block by block, at most the cost of one prefill chunk in a step."""
    assert steps_beside_a_long_source(8)["short"] == 1
    assert steps_beside_a_long_source(8)["long"] >= 3
    assert steps_beside_a_long_source(128)["long"] == 1  # inverse: what fits the budget is encoded at once
