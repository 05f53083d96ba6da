"""Server and engine: full queue, disconnects, hung engine, graceful shutdown."""

import concurrent.futures
import threading
import time

import openai
import pytest
from fastapi.testclient import TestClient
from tests.server.tiny_server import LOCAL, heard, knock, read_events, serving, spoken, until

from peasy.generation.limits import EngineLimits
from peasy.server import watchdog
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry

ASKED = {"model": "writer", "prompt": "the pizza", "temperature": 0}


@pytest.fixture
def models(folders):
    registry = ModelRegistry(folders[:1], weights="float32", limits=EngineLimits(max_num_seqs=2, max_queued_requests=2))
    registry.preload()
    return registry


@pytest.fixture
def engine(models):
    return models.kept["writer"].runner.engine


@pytest.fixture
def slowly(engine, monkeypatch):
    """Make each step slow, like that of a large model."""
    step = engine.step
    monkeypatch.setattr(engine, "step", lambda: (time.sleep(0.03), step())[1])


def test_full_queue_returns_retry_after(models, engine, slowly):
    with serving(build_app(models, pages=False)) as port, concurrent.futures.ThreadPoolExecutor(4) as pool:
        ask = openai.OpenAI(base_url=f"http://localhost:{port}/v1", api_key="any", max_retries=0)
        alone = ask.completions.create(**ASKED, max_tokens=30).choices[0].text
        asked = [pool.submit(ask.completions.create, **ASKED, max_tokens=30) for _ in range(2)]
        until(lambda: len(engine.rows) == 2)  # before that, the queue would be too short for four
        asked += [pool.submit(ask.completions.create, **ASKED, max_tokens=30) for _ in range(2)]
        until(lambda: len(engine.waiting) == 2)
        began = time.monotonic()
        with pytest.raises(openai.RateLimitError) as caught:
            ask.completions.create(**ASKED, max_tokens=30)
        assert time.monotonic() - began < 0.5
        assert int(caught.value.response.headers["retry-after"]) >= 1
        assert caught.value.body["type"] == "rate_limit_error"
        assert [each.result().choices[0].text for each in asked] == [alone] * 4


def test_without_queue_limit_all_requests_are_accepted(models, engine, slowly, monkeypatch):
    monkeypatch.setattr(engine.waiting, "limits", EngineLimits(max_queued_requests=10_000))
    with serving(build_app(models, pages=False)) as port, concurrent.futures.ThreadPoolExecutor(8) as pool:
        ask = openai.OpenAI(base_url=f"http://localhost:{port}/v1", api_key="any", max_retries=0)
        asked = [pool.submit(ask.completions.create, **ASKED, max_tokens=20) for _ in range(8)]
        assert all(each.result().choices for each in asked)


@pytest.mark.parametrize("stream", [True, False])
def test_disconnect_cancels_generation(models, engine, slowly, stream):
    with serving(build_app(models, pages=False)) as port:
        link = knock(port)
        link.sendall(spoken("/v1/completions", ASKED | {"max_tokens": 3000, "stream": stream}, port))
        until(lambda: engine.rows)
        time.sleep(0.1)
        link.close()
        left = time.monotonic()
        until(lambda: engine.idle)
        assert time.monotonic() - left < 0.5
        assert engine.counters.ended["cancelled"] == 1
        assert not models.kept["writer"].users


def test_without_session_close_generation_continues(models, engine, slowly, monkeypatch):
    from peasy.server.session import Session

    close = Session.close
    monkeypatch.setattr(Session, "close", lambda self: None)
    with serving(build_app(models, pages=False)) as port:
        link = knock(port)
        link.sendall(spoken("/v1/completions", ASKED | {"max_tokens": 3000, "stream": True}, port))
        until(lambda: engine.rows)
        link.close()
        time.sleep(0.5)
        assert engine.rows
        monkeypatch.setattr(Session, "close", close)
        engine.cancel()


def test_health_distinguishes_hung_from_busy_engine(models, engine, monkeypatch):
    monkeypatch.setattr(watchdog, "HEARTBEAT_TIMEOUT", 1.2)
    step, thaw, working = engine.step, threading.Event(), threading.Event()

    def frozen():
        thaw.wait(30)
        return step()

    def busy():
        end = time.monotonic() + 3
        while time.monotonic() < end and working.is_set():
            sum(range(1000))
        return step()

    with TestClient(build_app(models, pages=False), base_url=LOCAL) as client:
        until(lambda: client.get("/health").json()["engines"] == {"writer": "ok"})
        working.set()
        monkeypatch.setattr(engine, "step", busy)
        told = []
        for _ in range(10):
            time.sleep(0.25)
            told.append(client.get("/health").status_code)
        assert set(told) == {200}  # a step of three seconds is busy, not hung
        working.clear()
        monkeypatch.setattr(engine, "step", frozen)
        until(lambda: client.get("/health").status_code == 503, 10)
        assert client.get("/health").json() == {"status": "frozen", "engines": {"writer": "frozen"}}
        thaw.set()
        until(lambda: client.get("/health").status_code == 200, 10)


def test_health_depends_on_the_watchdog(models, engine, monkeypatch):
    monkeypatch.setattr(watchdog.Watchdog, "alive", property(lambda self: True))
    with TestClient(build_app(models, pages=False), base_url=LOCAL) as client:
        monkeypatch.setattr(engine, "heartbeat", -1e9)
        assert client.get("/health").status_code == 200


def test_shutdown_drains_running_requests(models, engine, slowly):
    found = {}

    def listen(link, name):
        found[name] = heard(link)[0].decode()

    with serving(build_app(models, pages=False), drain=10) as port:
        links = [knock(port) for _ in range(2)]
        for link in links:
            link.sendall(spoken("/v1/completions", ASKED | {"max_tokens": 40, "stream": True}, port))
        until(lambda: len(engine.rows) == 2)
        threads = [threading.Thread(target=listen, args=(link, name)) for name, link in enumerate(links)]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(10)
    for said in found.values():
        assert said.startswith("HTTP/1.1 200")
        assert "data: [DONE]" in said
        assert '"finish_reason":"length"' in said
    assert len(found) == 2


def test_streams_end_with_an_error_event_after_the_drain(models, engine, slowly):
    with serving(build_app(models, pages=False), drain=0.3) as port:
        link = knock(port)
        link.sendall(spoken("/v1/completions", ASKED | {"max_tokens": 3000, "stream": True}, port))
        until(lambda: engine.rows)
        time.sleep(0.2)
    said = heard(link)[0].decode()
    assert said.endswith("0\r\n\r\n")  # the last chunk of all
    assert "data: [DONE]" in said
    assert "This server is shutting down" in said


def test_model_failure_ends_the_stream_with_an_error(models, engine, monkeypatch):
    def fail(*given, **how):
        raise RuntimeError("torn")

    with TestClient(build_app(models, pages=False), base_url=LOCAL) as client:
        monkeypatch.setattr(engine.model, "read", fail)
        events, ended = read_events(client.post("/v1/completions", json=ASKED | {"stream": True}).text)
        assert ended
        assert events[-1]["error"]["type"] == "server_error"
        assert client.post("/v1/completions", json=ASKED).status_code == 500
        monkeypatch.undo()
        assert client.post("/v1/completions", json=ASKED).status_code == 200
