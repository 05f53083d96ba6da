"""The engine: whatever comes and goes, each text is the one it would be alone; one request's fault is its own."""

import gc
import random
import weakref
from collections import deque

import pytest
import torch
from tests.generation.company import KINDS, alone, choices_alone, ends, model_of, run, told

from peasy.errors import InvalidInput, NoRoom
from peasy.generation.engine import Engine
from peasy.generation.limit import Limits
from peasy.generation.prefix import PAGE
from peasy.generation.request import Ended, Overloaded, Request, Token
from peasy.generation.sampling import Sampling

SMALL = Limits(rows=5, chunk=PAGE, queue=30, memory=40_000_000, prefixes=30_000, buffer=6)
SHARED = tuple(random.Random(0).randrange(1, 7) for _ in range(3 * PAGE))


def some_request(chance: random.Random, sourced: bool) -> Request:
    """Prompts that often begin alike, sources that often are the same."""
    prompt = SHARED[: chance.choice([1, 3, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 5])]
    prompt += tuple(chance.randrange(1, 7) for _ in range(chance.randrange(4)))
    sampling = Sampling(
        chance.randrange(1, 9), chance.choice([0.0, 0.9]), seed=chance.randrange(3),
        repetition_penalty=chance.choice([1.0, 1.3]),
    )  # fmt: skip
    source = tuple(chance.choice([(4, 8, 15, 16), (23, 42), (5,)])) if sourced else None
    return Request(prompt[:10] if sourced else prompt, sampling, source, n=chance.choice([1, 1, 1, 3]))


def play(kind: str, seed: int, limits: Limits = SMALL) -> tuple[Engine, int]:
    """Requests come, are read and go at random; every one is compared with what it would be alone."""
    chance, engine = random.Random(seed), Engine(model_of(kind), limits=limits)
    coming = [some_request(chance, engine.model.reads_source) for _ in range(12)]
    running, heard, checked = {}, {}, 0
    while coming or not engine.idle:
        for _ in range(chance.randrange(3)):
            if coming:
                answer = engine.submit(coming.pop())
                running[answer], heard[answer] = answer.request, []
        if running and chance.random() < 0.05:
            chance.choice(list(running)).close()
        engine.step()
        for answer in running:
            if chance.random() < 0.5:
                heard[answer] += answer.take()
    for answer, request in running.items():
        heard[answer] += answer.take()
        for choice, text in enumerate(choices_alone(kind, request)):
            found, end = told(heard[answer], choice), ends(heard[answer])[choice]
            assert found == (text if end.reason == "length" else text[: end.tokens]), (kind, seed, request)
            assert end.reason in ("length", "cancelled")
            checked += end.reason == "length"
    assert engine.rows == []
    assert engine.reserved == {}
    assert engine.prefixes.bytes <= limits.prefixes
    return engine, checked


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_in_any_company_each_text_is_the_one_alone(kind, seed):
    engine, checked = play(kind, seed)
    assert checked > 8
    assert engine.counters.reused_tokens > 0 or engine.model.reads_source


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_in_any_company_at_length(kind):
    assert sum(play(kind, seed)[1] for seed in range(100, 160)) > 600


def test_a_page_found_by_other_ids_would_be_noticed(monkeypatch):
    """The inverse: were pages found by their length alone, texts would differ."""
    from peasy.generation.prefix import Prefixes

    def careless(self, chain, ids):
        return next((page for page in self.pages.values() if len(page.key[1]) == len(ids)), None)

    monkeypatch.setattr(Prefixes, "find", careless)
    with pytest.raises(AssertionError):
        deque((play("decoder", seed) for seed in range(8)), maxlen=0)


def test_running_texts_do_not_stall_while_a_prompt_is_read():
    engine = Engine(model_of("decoder"), limits=Limits(chunk=PAGE))
    writing = engine.submit(Request((1, 2), Sampling(max_tokens=50)))
    engine.step()
    reading = engine.submit(Request(SHARED, Sampling(max_tokens=3)))
    for step in range(2, 5):
        engine.step()
        assert len(told(writing.take())) == (2 if step == 2 else 1)
        assert len(told(reading.take())) == (step == 4)  # three pages in three steps, the first token with the last


def test_a_shared_beginning_is_read_once():
    engine = Engine(model_of("decoder"), limits=Limits(chunk=2 * PAGE))
    answers = [engine.submit(Request((*SHARED, tail), Sampling(max_tokens=3))) for tail in range(1, 7)]
    run(engine)
    assert [told(answer.take()) for answer in answers] == [alone("decoder", (*SHARED, t), None, 3) for t in range(1, 7)]
    assert engine.counters.prompt_tokens == len(SHARED) + 6
    assert [answer.reused for answer in answers] == [0] + [len(SHARED)] * 5
    assert engine.counters.prefix_hits == 5


def test_what_was_written_is_shared_too():
    """The next turn of a talk begins with the prompt and the answer before."""
    engine = Engine(model_of("decoder"))
    first = engine.submit(Request(SHARED[: PAGE - 4], Sampling(max_tokens=10)))
    run(engine)
    again = engine.submit(Request((*SHARED[: PAGE - 4], *told(first.take()), 3, 4), Sampling(max_tokens=5)))
    run(engine)
    assert again.reused == PAGE
    assert told(again.take()) == alone("decoder", again.request.prompt, None, 5)


def test_choices_are_forks_of_one_reading():
    engine = Engine(model_of("decoder"))
    answer = engine.submit(Request(SHARED, Sampling(6, 1.0, seed=4), n=4))
    run(engine)
    events = answer.take()
    texts = [told(events, choice) for choice in range(4)]
    assert texts == [alone("decoder", SHARED, None, 6, temperature=1.0, seed=4 + i) for i in range(4)]
    assert len({tuple(text) for text in texts}) > 1
    assert engine.counters.prompt_tokens == len(SHARED)


def test_a_full_queue_says_when_to_come_back():
    engine = Engine(model_of("decoder"), limits=Limits(rows=1, queue=2, queue_tokens=100))
    kept = [engine.submit(Request((1,), Sampling(max_tokens=10))) for _ in range(2)]
    with pytest.raises(Overloaded, match="2 requests with 22 tokens are waiting already") as refused:
        engine.submit(Request((1,), Sampling(max_tokens=10)))
    assert refused.value.retry_after >= 1
    assert refused.value.hint == "Ask again in 1 s."
    engine.step()
    kept.append(engine.submit(Request((1,), Sampling(max_tokens=60))))  # one has left the queue
    with pytest.raises(Overloaded):
        engine.submit(Request((1,), Sampling(max_tokens=60)))
    run(engine)
    assert [ends(answer.take())[0].reason for answer in kept] == ["length"] * 3
    assert engine.counters.refused == 2


def test_the_time_to_come_back_follows_the_work_that_waits():
    engine = Engine(model_of("decoder"), limits=Limits(rows=1, queue_tokens=1000))
    engine.counters.speed = 10.0
    engine.submit(Request((1,), Sampling(max_tokens=998)))
    with pytest.raises(Overloaded) as refused:
        engine.submit(Request((1,), Sampling(max_tokens=100)))
    assert refused.value.retry_after == pytest.approx(10.0)


def test_memory_is_kept_within_its_budget():
    """Requests wait until their memory fits; what runs never holds more than was set aside."""
    from peasy.generation.footprint import held_bytes

    model = model_of("window")
    one = Engine(model).footprint.bytes(300)
    engine = Engine(model, limits=Limits(memory=2 * one + 1, prefixes=0))
    answers = [engine.submit(Request(SHARED * 2, Sampling(max_tokens=300 - 2 * len(SHARED)))) for _ in range(4)]
    most = 0
    while engine.step():
        assert len(engine.rows) <= 2
        held = sum(held_bytes(row.memory) for row in engine.rows)
        assert held <= sum(engine.reserved.values()) <= engine.limits.memory
        most = max(most, held)
    assert most > one / 4
    assert {ends(answer.take())[0].reason for answer in answers} == {"length"}
    with pytest.raises(NoRoom, match="bytes of memory; the engine has"):
        engine.submit(Request((1,), Sampling(max_tokens=100_000), n=9))


@pytest.mark.parametrize("when", [0, 1, 2, 5])
def test_cancelling_frees_before_the_next_pass(when, monkeypatch):
    """Waiting, while its prompt is read, and while it writes."""
    engine = Engine(model_of("decoder"), limits=Limits(chunk=PAGE, prefixes=0))
    answer = engine.submit(Request(SHARED, Sampling(max_tokens=50), n=2))
    for _ in range(when):
        engine.step()
    memories = [weakref.ref(row.memory) for row in engine.rows]
    assert bool(memories) == (when > 0)
    answer.close()
    monkeypatch.setattr(engine.model, "read", None)  # a pass would fail
    assert not engine.step()
    gc.collect()
    assert not any(memory() for memory in memories)
    assert engine.reserved == {}
    assert [end.reason for end in ends(answer.take()).values()] == ["cancelled"] * 2


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_deadlines_hold_while_waiting_reading_and_writing():
    clock = Clock()
    engine = Engine(model_of("decoder"), limits=Limits(rows=2, chunk=PAGE), clock=clock)
    asked = (((1,), 5), (SHARED, 3), ((1,), 4))
    writing, reading, waiting = (
        engine.submit(Request(prompt, Sampling(max_tokens=100), deadline=seconds)) for prompt, seconds in asked
    )
    engine.step()
    clock.now += 3.5
    engine.step()
    assert ends(reading.take())[0].reason == "deadline"
    assert not ends(writing.take())
    clock.now += 1
    engine.step()
    assert ends(waiting.take())[0].reason == "deadline"
    clock.now += 1
    engine.step()
    assert ends(writing.take())[0].reason == "deadline"
    assert engine.idle


def faulty(monkeypatch, model, wrong, when):
    """The model's `read`, where a text that holds the token 60 goes wrong."""
    plain = model.read

    def read(texts, memories, **how):
        found = plain(texts, memories, **how)
        return [wrong(scores) if 60 in text and when() else scores for text, scores in zip(texts, found, strict=True)]

    monkeypatch.setattr(model, "read", read)


def raising(scores):
    raise RuntimeError("a pass broke")


@pytest.mark.parametrize("kind", ["decoder", "window", "lstm", "ngram", "convolution"])
@pytest.mark.parametrize("wrong", [lambda scores: scores * torch.nan, raising])
def test_the_fault_of_one_is_not_that_of_others(kind, wrong, monkeypatch):
    engine = Engine(model_of(kind), limits=Limits(chunk=PAGE))
    faulty(monkeypatch, engine.model, wrong, lambda: True)
    asked = [Request((5, 9, 2)), Request((*SHARED[:40], 60), n=2), Request(SHARED[:50], Sampling(20, 0.8))]
    answers = [engine.submit(request) for request in asked]
    run(engine)
    good, bad, other = (answer.take() for answer in answers)
    assert told(good) == alone(kind, asked[0].prompt, None, 20)
    assert told(other) == alone(kind, asked[2].prompt, None, 20, temperature=0.8, seed=0)
    assert [end.reason for end in ends(bad).values()] == ["error"] * 2
    assert engine.counters.ended == {"length": 2, "error": 2}
    assert engine.idle


def test_without_the_guard_one_fault_is_everybodys(monkeypatch):
    """The inverse: a pass that fails would reach the caller."""

    def bare(self, turns):
        for turn, scores in zip(turns, self._pass(turns), strict=True):
            self._advance(turn, scores)

    monkeypatch.setattr(Engine, "_read", bare)
    engine = Engine(model_of("decoder"))
    faulty(monkeypatch, engine.model, raising, lambda: True)
    for prompt in ((1,), (60,)):
        engine.submit(Request(prompt))
    with pytest.raises(RuntimeError, match="a pass broke"):
        engine.step()


def test_an_error_that_is_told_keeps_no_memory_alive(monkeypatch):
    engine = Engine(model_of("decoder"), limits=Limits(prefixes=0))
    faulty(monkeypatch, engine.model, raising, lambda: len(engine.rows[0].ids) > 3)
    answer = engine.submit(Request((1, 60)))
    engine.step()
    memory = weakref.ref(engine.rows[0].memory)
    engine.rows[0].ids.extend([60, 60])
    run(engine)
    gc.collect()
    assert memory() is None
    assert "RuntimeError: a pass broke" in str(ends(answer.take())[0].error)


def test_nothing_is_held_when_all_have_gone():
    engine = Engine(model_of("decoder"))
    rows = []
    for seed in range(3):
        answer = engine.submit(Request(SHARED, Sampling(4, 1.0, seed), n=3))
        for _ in range(3):
            engine.step()
            rows += [weakref.ref(thing) for row in engine.rows for thing in (row, row.memory)]
        run(engine)
        answer.take()
    gc.collect()
    assert len(rows) > 10
    assert not [ref for ref in rows if ref() is not None]


def test_a_slow_reader_pauses_its_own_text_and_is_let_go():
    clock = Clock()
    engine = Engine(model_of("decoder"), limits=Limits(buffer=4, patience=10), clock=clock)
    slow, quick = (engine.submit(Request((1,), Sampling(max_tokens=12))) for _ in range(2))
    heard = []
    for _ in range(20):
        engine.step()
        heard += quick.take()
    assert told(heard) == alone("decoder", (1,), None, 12)
    first = slow.take()
    assert len(first) == 4
    for _ in range(20):
        engine.step()
    clock.now += 11
    engine.step()
    rest = slow.take()
    assert told(first + rest) == alone("decoder", (1,), None, 12)[:8]
    assert ends(rest)[0].reason == "slow"
    assert engine.idle


def test_a_slow_reader_who_reads_on_gets_all():
    clock = Clock()
    engine = Engine(model_of("decoder"), limits=Limits(buffer=4, patience=10), clock=clock)
    slow, heard = engine.submit(Request((1,), Sampling(max_tokens=12))), []
    while not engine.idle:
        engine.step()
        engine.step()
        clock.now += 8
        if slow.full:
            heard += slow.take()
    assert told(heard + slow.take()) == alone("decoder", (1,), None, 12)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request(()), "nothing to write on from"),
        (Request((61,)), "no token 61: this model knows 0 to 60"),
        (Request((1, -1)), "no token -1"),
        (Request((1,), source=(1,)), "has no source"),
        (Request((1,), n=17), "n is 17"),
        (Request((1,), Sampling(stop=("x",))), "no tokenizer to find them by"),
    ],
)
def test_what_cannot_be_answered_is_refused_at_once(request_, says):
    engine = Engine(model_of("decoder"))
    with pytest.raises(InvalidInput, match=says):
        engine.submit(request_)
    assert engine.idle
    assert engine.counters.refused == 1
    assert engine.counters.submitted == 0


def test_a_deadline_is_a_number_above_zero():
    for wrong in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="deadline is"):
            Request((1,), deadline=wrong)


def test_counters_tell_what_happened():
    engine = Engine(model_of("decoder"))
    answer = engine.submit(Request(SHARED, Sampling(max_tokens=5), n=2))
    assert engine.snapshot()["waiting"] == 1
    assert engine.snapshot()["waiting_tokens"] == len(SHARED) + 10
    engine.step()
    now = engine.snapshot()
    assert (now["running"], now["waiting"]) == (2, 0)
    assert now["reserved_bytes"] == 2 * engine.footprint.bytes(len(SHARED) + 5)
    run(engine)
    now = engine.snapshot()
    assert (now["prompt_tokens"], now["written_tokens"], now["steps"]) == (len(SHARED), 10, 5)
    assert now["ended"] == {"length": 2}
    assert now["step_seconds"] >= now["longest_step"] > 0
    assert sum(isinstance(event, Token | Ended) for event in answer.take()) == 12
