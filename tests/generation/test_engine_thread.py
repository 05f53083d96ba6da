"""Engine thread: concurrent clients, close, drain, heartbeat."""

import threading
import time

import pytest
from tests.generation.tiny_models import alone, final_events, model_of, token_ids

from peasy.generation.engine import Engine
from peasy.generation.engine_thread import EngineThread
from peasy.generation.limits import EngineLimits
from peasy.generation.request import Ended, Overloaded, Request
from peasy.generation.sampling import SamplingParams


@pytest.fixture
def runner():
    with EngineThread(Engine(model_of("decoder"))) as running:
        yield running


def wait_until(true, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(0.002)


def test_concurrent_requests_get_their_own_output(runner):
    results = {}

    def submit_one(number: int) -> None:
        results[number] = token_ids(runner.submit(Request((1, number), SamplingParams(8, 0.8, seed=number))))

    threads = [threading.Thread(target=submit_one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == {i: alone("decoder", (1, i), None, 8, temperature=0.8, seed=i) for i in range(12)}


def test_closing_a_response_cancels_the_request(runner):
    with runner.submit(Request((1,), SamplingParams(max_tokens=100_000))) as response:
        first = next(response)
        assert first.place == 0
    wait_until(lambda: runner.engine.idle)
    assert runner.engine.counters.ended == {"cancelled": 1}
    assert [event.reason for event in response if isinstance(event, Ended)] == ["cancelled"]


def test_drain_finishes_present_requests(runner):
    responses = [runner.submit(Request((1,), SamplingParams(max_tokens=30))) for _ in range(40)]
    assert runner.drain(timeout=30)
    assert [final_events(response)[0].reason for response in responses] == ["length"] * 40
    with pytest.raises(Overloaded, match="takes no more requests"):
        runner.submit(Request((1,)))


def test_drain_times_out(runner):
    response = runner.submit(Request((1,), SamplingParams(max_tokens=200)))
    response.buffer = 1  # unread: the request pauses and does not end
    began = time.monotonic()
    assert not runner.drain(timeout=0.1)
    assert time.monotonic() - began < 5


def test_close_cancels_all_requests():
    runner = EngineThread(Engine(model_of("decoder"), limits=EngineLimits(max_num_seqs=1)))
    responses = [runner.submit(Request((1,), SamplingParams(max_tokens=10_000))) for _ in range(3)]
    runner.close()
    assert [final_events(response)[0].reason for response in responses] == ["cancelled"] * 3
    assert runner.engine.idle
    with pytest.raises(Overloaded):
        runner.submit(Request((1,)))
    assert not runner.is_healthy()


def test_heartbeat_stops_when_a_pass_hangs(runner, monkeypatch):
    time.sleep(0.3)
    assert runner.healthy(within=5.0)
    before = runner.engine.heartbeat
    wait_until(lambda: runner.engine.heartbeat > before)
    hanging, plain = threading.Event(), runner.engine.model.read

    def hang(*given, **how):
        hanging.wait(20)
        return plain(*given, **how)

    monkeypatch.setattr(runner.engine.model, "forward_varlen", hang)
    response = runner.submit(Request((1,), SamplingParams(max_tokens=3)))
    wait_until(lambda: not runner.healthy(within=0.2))
    assert runner.engine.snapshot()["heartbeat_age"] > 0.2
    for _ in range(runner.engine.limits.queue):  # submission still works at once
        runner.submit(Request((1,), deadline=1e-6))
    with pytest.raises(Overloaded):
        runner.submit(Request((1,)))
    hanging.set()
    assert len(token_ids(response)) == 3
    wait_until(lambda: runner.healthy(within=5.0))


def test_the_engine_survives_an_internal_error(runner, monkeypatch):
    broken, plain = [True], Engine._schedule

    def plan(self):
        if self.rows and broken:
            broken.clear()
            raise RuntimeError("a bug")
        return plain(self)

    monkeypatch.setattr(Engine, "_schedule", plan)
    assert "RuntimeError: a bug" in str(final_events(runner.submit(Request((1,))))[0].error)
    assert token_ids(runner.submit(Request((1,), SamplingParams(max_tokens=5)))) == alone("decoder", (1,), None, 5)


def test_on_event_is_called_for_each_event(runner):
    """For servers with an event loop: a callback for each event, no waiting thread."""
    called = threading.Semaphore(0)
    response = runner.submit(Request((1,), SamplingParams(max_tokens=4), deadline=30))
    response.notify = called.release
    events = []
    while not (response.done and len(token_ids(events)) == 4):
        called.acquire(timeout=1)
        events += response.take()
    assert token_ids(events) == alone("decoder", (1,), None, 4)
