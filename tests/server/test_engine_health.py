"""Server and engine: full queue, disconnects, hung engine, graceful shutdown."""

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from types import SimpleNamespace

import openai
import pytest
from fastapi.testclient import TestClient
from tests.server.tiny_server import LOCAL, connect, post_bytes, read_all, read_events, running_server, wait_until

from peasy.generation.limits import EngineLimits
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry
from peasy.server.routes import health
from peasy.server.session import Session

REQUEST = {"model": "writer", "prompt": "the pizza", "temperature": 0}


@pytest.fixture
def models(folders):
    registry = ModelRegistry(folders[:1], weights="float32", limits=EngineLimits(max_num_seqs=2, max_queued_requests=2))
    registry.preload()
    return registry


@pytest.fixture
def engine(models):
    return models.loaded["writer"].engine_thread.engine


@pytest.fixture
def slowly(engine, monkeypatch):
    """Make future step slow, like that of a large model."""
    step = engine.step
    monkeypatch.setattr(engine, "step", lambda: (time.sleep(0.03), step())[1])


def test_full_queue_returns_retry_after(models, engine, monkeypatch):
    step, resume = engine.step, threading.Event()
    with running_server(build_app(models, pages=False)) as port, concurrent.futures.ThreadPoolExecutor(4) as pool:
        client = openai.OpenAI(base_url=f"http://localhost:{port}/v1", api_key="any", max_retries=0)
        alone = client.completions.create(**REQUEST, max_tokens=30).choices[0].text
        # No request ends before the fifth is refused.
        monkeypatch.setattr(engine, "step", lambda: (len(engine.running) == 2 and resume.wait(), step())[1])
        futures = [pool.submit(client.completions.create, **REQUEST, max_tokens=30) for _ in range(2)]
        wait_until(lambda: len(engine.running) == 2)  # before that, the queue would be too short for four
        futures += [pool.submit(client.completions.create, **REQUEST, max_tokens=30) for _ in range(2)]
        wait_until(lambda: len(engine.queue) == 2)
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(**REQUEST, max_tokens=30)
        resume.set()
        assert int(caught.value.response.headers["retry-after"]) >= 1
        assert caught.value.body["type"] == "rate_limit_error"
        assert [future.result().choices[0].text for future in futures] == [alone] * 4


def test_without_queue_limit_all_requests_are_accepted(models, engine, slowly, monkeypatch):
    monkeypatch.setattr(engine.queue, "limits", EngineLimits(max_queued_requests=10_000))
    with running_server(build_app(models, pages=False)) as port, concurrent.futures.ThreadPoolExecutor(8) as pool:
        client = openai.OpenAI(base_url=f"http://localhost:{port}/v1", api_key="any", max_retries=0)
        futures = [pool.submit(client.completions.create, **REQUEST, max_tokens=20) for _ in range(8)]
        assert all(future.result().choices for future in futures)


@pytest.mark.parametrize("stream", [True, False])
def test_disconnect_cancels_generation(models, engine, slowly, stream):
    with running_server(build_app(models, pages=False)) as port:
        connection = connect(port)
        connection.sendall(post_bytes("/v1/completions", REQUEST | {"max_tokens": 3000, "stream": stream}, port))
        wait_until(lambda: engine.running)
        time.sleep(0.1)
        connection.close()
        wait_until(lambda: engine.idle, 80)  # 3,000 tokens would take 90 seconds
        assert engine.stats.finished["cancelled"] == 1
        assert not models.loaded["writer"].num_users


@pytest.mark.parametrize("iterations", range(8))
def test_disconnect_at_the_moment_of_a_token_is_not_lost(iterations):
    """The cancellation comes some iterations of the event loop after a token has woken the waiting task."""

    async def is_cancelled() -> bool:
        stream = SimpleNamespace(on_event=None, pop_all=list)
        session = Session(None, None, 1, contextlib.ExitStack(), prompts=[[1]], streams=[stream])

        async def read() -> None:
            async for _ in session.events():
                pass

        reading = asyncio.ensure_future(read())
        while stream.on_event is None:
            await asyncio.sleep(0)
        for _ in range(10):  # until it waits for the first token
            await asyncio.sleep(0)
        stream.on_event()
        for _ in range(iterations):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading], timeout=0.2)
        cancelled = reading.cancelled()
        reading.cancel()
        return cancelled

    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # the browser of other tests has a loop in this thread
        assert pool.submit(asyncio.run, is_cancelled()).result()


def test_without_session_close_generation_continues(models, engine, slowly, monkeypatch):
    close = Session.close
    monkeypatch.setattr(Session, "close", lambda self: None)
    with running_server(build_app(models, pages=False)) as port:
        connection = connect(port)
        connection.sendall(post_bytes("/v1/completions", REQUEST | {"max_tokens": 3000, "stream": True}, port))
        wait_until(lambda: engine.running)
        connection.close()
        time.sleep(0.5)
        assert engine.running
        monkeypatch.setattr(Session, "close", close)
        engine.cancel()


def test_health_distinguishes_hung_from_busy_engine(models, engine, monkeypatch):
    monkeypatch.setattr(health, "HEARTBEAT_TIMEOUT", 1.2)
    step, resume, working = engine.step, threading.Event(), threading.Event()

    def hung():
        resume.wait(30)
        return step()

    def busy():
        end = time.monotonic() + 3
        while time.monotonic() < end and working.is_set():
            sum(range(1000))
        return step()

    with TestClient(build_app(models, pages=False), base_url=LOCAL) as client:
        wait_until(lambda: client.get("/health").json()["engines"] == {"writer": "ok"})
        working.set()
        monkeypatch.setattr(engine, "step", busy)
        statuses = []
        for _ in range(10):
            time.sleep(0.25)
            statuses.append(client.get("/health").status_code)
        assert set(statuses) == {200}  # a step of three seconds is busy, not hung
        working.clear()
        monkeypatch.setattr(engine, "step", hung)
        wait_until(lambda: client.get("/health").status_code == 503)
        assert client.get("/health").json() == {"status": "hung", "engines": {"writer": "hung"}}
        resume.set()
        wait_until(lambda: client.get("/health").status_code == 200)


def test_health_depends_on_the_watchdog(models, engine, monkeypatch):
    monkeypatch.setattr(health.Watchdog, "alive", property(lambda self: True))
    with TestClient(build_app(models, pages=False), base_url=LOCAL) as client:
        monkeypatch.setattr(engine, "heartbeat", -1e9)
        assert client.get("/health").status_code == 200


def test_shutdown_drains_running_requests(models, engine, slowly):
    responses = {}

    def listen(connection, name):
        responses[name] = read_all(connection)[0].decode()

    with running_server(build_app(models, pages=False), shutdown_timeout=10) as port:
        connections = [connect(port) for _ in range(2)]
        for connection in connections:
            connection.sendall(post_bytes("/v1/completions", REQUEST | {"max_tokens": 40, "stream": True}, port))
        wait_until(lambda: len(engine.running) == 2)
        threads = [
            threading.Thread(target=listen, args=(connection, name)) for name, connection in enumerate(connections)
        ]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(120)
    for received in responses.values():
        assert received.startswith("HTTP/1.1 200")
        assert "data: [DONE]" in received
        assert '"finish_reason":"length"' in received
    assert len(responses) == 2


def test_streams_end_with_an_error_event_after_the_drain(models, engine, slowly):
    with running_server(build_app(models, pages=False), shutdown_timeout=0.3) as port:
        connection = connect(port)
        connection.sendall(post_bytes("/v1/completions", REQUEST | {"max_tokens": 3000, "stream": True}, port))
        wait_until(lambda: engine.running)
        time.sleep(0.2)
    received = read_all(connection)[0].decode()
    assert received.endswith("0\r\n\r\n")  # the last chunk of all
    assert "data: [DONE]" in received
    assert "This server is shutting down" in received


def test_model_failure_ends_the_stream_with_an_error(models, engine, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("torn")

    with TestClient(build_app(models, pages=False), base_url=LOCAL) as client:
        monkeypatch.setattr(engine.model, "forward_varlen", fail)
        events, ended = read_events(client.post("/v1/completions", json=REQUEST | {"stream": True}).text)
        assert ended
        assert events[-1]["error"]["type"] == "server_error"
        assert client.post("/v1/completions", json=REQUEST).status_code == 500
        monkeypatch.undo()
        assert client.post("/v1/completions", json=REQUEST).status_code == 200
