"""Engine thread: concurrent clients, close, heartbeat."""

import threading
import time

import pytest
from tests.generation.tiny_models import alone, final_events, model_of, token_ids

from peasy.generation.engine import Engine
from peasy.generation.engine_thread import EngineThread
from peasy.generation.limits import EngineLimits
from peasy.generation.request import Ended, Overloaded, Request
from peasy.generation.sampling_params import SamplingParams


@pytest.fixture
def engine_thread():
    with EngineThread(Engine(model_of("decoder"))) as thread:
        yield thread


def wait_until(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(0.002)


def test_concurrent_requests_get_their_own_output(engine_thread):
    results = {}

    def submit_one(number: int) -> None:
        results[number] = token_ids(
            engine_thread.engine.submit(Request((1, number), SamplingParams(8, 0.8, seed=number)))
        )

    threads = [threading.Thread(target=submit_one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == {i: alone("decoder", (1, i), None, 8, temperature=0.8, seed=i) for i in range(12)}


def test_closing_a_response_cancels_the_request(engine_thread):
    with engine_thread.engine.submit(Request((1,), SamplingParams(max_tokens=100_000))) as response:
        first = next(response)
        assert first.index == 0
    wait_until(lambda: engine_thread.engine.idle)
    assert engine_thread.engine.stats.finished == {"cancelled": 1}
    assert [event.reason for event in response if isinstance(event, Ended)] == ["cancelled"]


def test_close_cancels_all_requests():
    engine_thread = EngineThread(Engine(model_of("decoder"), limits=EngineLimits(max_num_seqs=1)))
    responses = [engine_thread.engine.submit(Request((1,), SamplingParams(max_tokens=10_000))) for _ in range(3)]
    engine_thread.close()
    assert [final_events(response)[0].reason for response in responses] == ["cancelled"] * 3
    assert engine_thread.engine.idle
    with pytest.raises(Overloaded):
        engine_thread.engine.submit(Request((1,)))
    assert engine_thread.native_thread_id is None


def test_heartbeat_stops_when_a_pass_hangs(engine_thread, monkeypatch):
    assert engine_thread.native_thread_id is not None
    before = engine_thread.engine.heartbeat
    wait_until(lambda: engine_thread.engine.heartbeat > before)
    hanging, original = threading.Event(), engine_thread.engine.model.forward_varlen

    def hang(*args, **options):
        hanging.wait(20)
        return original(*args, **options)

    monkeypatch.setattr(engine_thread.engine.model, "forward_varlen", hang)
    response = engine_thread.engine.submit(Request((1,), SamplingParams(max_tokens=3)))
    wait_until(lambda: engine_thread.engine.snapshot()["heartbeat_age"] > 0.2)
    last = engine_thread.engine.heartbeat
    for _ in range(engine_thread.engine.limits.max_queued_requests):  # submission still works at once
        engine_thread.engine.submit(Request((1,), timeout=1e-6))
    with pytest.raises(Overloaded):
        engine_thread.engine.submit(Request((1,)))
    hanging.set()
    assert len(token_ids(response)) == 3
    wait_until(lambda: engine_thread.engine.heartbeat > last)


def test_the_engine_survives_an_internal_error(engine_thread, monkeypatch):
    broken, original = [True], Engine._schedule

    def schedule(self):
        if self.running and broken:
            broken.clear()
            raise RuntimeError("a bug")
        return original(self)

    monkeypatch.setattr(Engine, "_schedule", schedule)
    assert "RuntimeError: a bug" in str(final_events(engine_thread.engine.submit(Request((1,))))[0].error)
    assert token_ids(engine_thread.engine.submit(Request((1,), SamplingParams(max_tokens=5)))) == alone(
        "decoder", (1,), None, 5
    )


def test_on_event_is_called_for_each_event(engine_thread):
    """For servers with an event loop: a callback for each event, no waiting thread."""
    called = threading.Semaphore(0)
    response = engine_thread.engine.submit(Request((1,), SamplingParams(max_tokens=4), timeout=30))
    response.on_event = called.release
    events = []
    while not (response.is_finished and len(token_ids(events)) == 4):
        called.acquire(timeout=1)
        events += response.pop_all()
    assert token_ids(events) == alone("decoder", (1,), None, 4)
