"""The engine in a thread: many readers at once, closing, draining, a heart that beats or does not."""

import threading
import time

import pytest
from tests.generation.company import alone, ends, model_of, told

from peasy.generation.engine import Engine
from peasy.generation.limit import Limits
from peasy.generation.request import Ended, Overloaded, Request
from peasy.generation.runner import Runner
from peasy.generation.sampling import Sampling


@pytest.fixture
def runner():
    with Runner(Engine(model_of("decoder"))) as running:
        yield running


def wait_until(true, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.002)


def test_many_readers_each_get_their_own_text(runner):
    found = {}

    def ask(number: int) -> None:
        found[number] = told(runner.submit(Request((1, number), Sampling(8, 0.8, seed=number))))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == {i: alone("decoder", (1, i), None, 8, temperature=0.8, seed=i) for i in range(12)}


def test_closing_an_answer_cancels_it(runner):
    with runner.submit(Request((1,), Sampling(max_tokens=100_000))) as answer:
        first = next(answer)
        assert first.place == 0
    wait_until(lambda: runner.engine.idle)
    assert runner.engine.counters.ended == {"cancelled": 1}
    assert [event.reason for event in answer if isinstance(event, Ended)] == ["cancelled"]


def test_draining_answers_those_that_are_there(runner):
    answers = [runner.submit(Request((1,), Sampling(max_tokens=30))) for _ in range(40)]
    assert runner.drain(timeout=30)
    assert [ends(answer)[0].reason for answer in answers] == ["length"] * 40
    with pytest.raises(Overloaded, match="takes no more requests"):
        runner.submit(Request((1,)))


def test_draining_gives_up_in_time(runner):
    answer = runner.submit(Request((1,), Sampling(max_tokens=200)))
    answer.buffer = 1  # nobody reads: it pauses and does not end
    began = time.monotonic()
    assert not runner.drain(timeout=0.1)
    assert time.monotonic() - began < 5


def test_closing_ends_everybody():
    runner = Runner(Engine(model_of("decoder"), limits=Limits(rows=1)))
    answers = [runner.submit(Request((1,), Sampling(max_tokens=10_000))) for _ in range(3)]
    runner.close()
    assert [ends(answer)[0].reason for answer in answers] == ["cancelled"] * 3
    assert runner.engine.idle
    with pytest.raises(Overloaded):
        runner.submit(Request((1,)))
    assert not runner.healthy()


def test_the_heart_beats_while_idle_and_stops_when_a_pass_hangs(runner, monkeypatch):
    time.sleep(0.3)
    assert runner.healthy(within=5.0)
    before = runner.engine.heartbeat
    wait_until(lambda: runner.engine.heartbeat > before)
    hanging, plain = threading.Event(), runner.engine.model.read

    def hang(*given, **how):
        hanging.wait(20)
        return plain(*given, **how)

    monkeypatch.setattr(runner.engine.model, "read", hang)
    answer = runner.submit(Request((1,), Sampling(max_tokens=3)))
    wait_until(lambda: not runner.healthy(within=0.2))
    assert runner.engine.snapshot()["heartbeat_age"] > 0.2
    for _ in range(runner.engine.limits.queue):  # it still answers those who ask, at once
        runner.submit(Request((1,), deadline=1e-6))
    with pytest.raises(Overloaded):
        runner.submit(Request((1,)))
    hanging.set()
    assert len(told(answer)) == 3
    wait_until(lambda: runner.healthy(within=5.0))


def test_an_error_outside_any_request_ends_what_runs_and_the_engine_goes_on(runner, monkeypatch):
    broken, plain = [True], Engine._plan

    def plan(self):
        if self.rows and broken:
            broken.clear()
            raise RuntimeError("a bug")
        return plain(self)

    monkeypatch.setattr(Engine, "_plan", plan)
    assert "RuntimeError: a bug" in str(ends(runner.submit(Request((1,))))[0].error)
    assert told(runner.submit(Request((1,), Sampling(max_tokens=5)))) == alone("decoder", (1,), None, 5)


def test_somebody_else_may_be_told_that_there_is_news(runner):
    """What a server with an event loop needs: a call for each event, no waiting thread."""
    called = threading.Semaphore(0)
    answer = runner.submit(Request((1,), Sampling(max_tokens=4), deadline=30))
    answer.notify = called.release
    heard = []
    while not (answer.done and len(told(heard)) == 4):
        called.acquire(timeout=1)
        heard += answer.take()
    assert told(heard) == alone("decoder", (1,), None, 4)
