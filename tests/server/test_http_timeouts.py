"""Timeouts of slow senders, idle sockets and slow readers; each with its inverse.

The real timeouts are eight seconds; here they are shortened, and one slow test waits for the real ones.
"""

import json
import time

import pytest
from tests.server.tiny_server import heard, knock, serving, spoken, until

from peasy.server import http_timeouts
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry

SHORT = 0.4
ASKED = {"model": "writer", "prompt": "the", "max_tokens": 3, "temperature": 0}


@pytest.fixture
def models(folders):
    registry = ModelRegistry(folders[:1], weights="float32")
    registry.preload()
    return registry


@pytest.fixture
def short(monkeypatch):
    for name in ("IDLE", "REQUEST", "READING"):
        monkeypatch.setattr(http_timeouts, name, SHORT)


@pytest.fixture
def open_port(models):
    with serving(build_app(models, pages=False)) as port:
        yield port


def trickle(link, what):
    """Send byte by byte until the server disconnects; return the seconds it took."""
    began = time.monotonic()
    for letter in what:
        try:
            link.sendall(bytes([letter]))
        except ConnectionError:
            return time.monotonic() - began
        time.sleep(SHORT / 10)
    raise AssertionError("the server accepted all bytes")


def test_idle_socket_is_closed(short, open_port):
    said, seconds = heard(knock(open_port))
    assert said == b""
    assert SHORT / 2 < seconds < 10 * SHORT


def test_slow_headers_are_aborted(short, open_port):
    assert trickle(knock(open_port), b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 200) < 10 * SHORT


def test_slow_body_is_aborted(short, open_port):
    link = knock(open_port)
    head, _, body = spoken("/v1/completions", ASKED, open_port).partition(b"\r\n\r\n")
    link.sendall(head + b"\r\n\r\n")
    assert trickle(link, body + b" " * 200) < 10 * SHORT


def test_without_timeouts_slow_senders_stay(monkeypatch, short, open_port):
    monkeypatch.setattr(http_timeouts.TimeoutProtocol, "_abort", lambda self: None)
    link = knock(open_port)
    for letter in "GET /health HTTP/1.1\r\n":
        link.sendall(letter.encode())
        time.sleep(SHORT / 8)
    link.sendall(b"host: localhost\r\nconnection: close\r\n\r\n")
    assert heard(link)[0].startswith(b"HTTP/1.1 200")


def test_keep_alive_and_idle_timeout(short, open_port):
    link = knock(open_port)
    for _ in range(3):
        link.sendall(spoken("/v1/completions", ASKED, open_port))
        said = b""
        while not said.endswith(b"}}}"):
            said += link.recv(65536)
        assert said.startswith(b"HTTP/1.1 200")
    assert heard(link)[1] < 10 * SHORT + 1


def test_long_responses_have_no_timeout(short, open_port, models, monkeypatch):
    engine = models.kept["writer"].runner.engine
    step = engine.step
    monkeypatch.setattr(engine, "step", lambda: (time.sleep(SHORT), step())[1])
    link = knock(open_port)
    link.sendall(spoken("/v1/completions", ASKED | {"max_tokens": 5}, open_port, connection="close"))
    said, seconds = heard(link)
    assert said.startswith(b"HTTP/1.1 200")
    assert seconds > 2 * SHORT


LARGE = ASKED | {"max_tokens": 4000, "stream": True, "logprobs": 20, "attention": {"keys": 256}}


def test_slow_reader_is_disconnected(short, open_port, models):
    engine = models.kept["writer"].runner.engine
    link = knock(open_port, rcvbuf=4096)
    link.sendall(spoken("/v1/completions", LARGE, open_port))
    until(lambda: engine.rows)
    until(lambda: engine.idle, 15)  # and its memory is freed
    link.close()


def test_without_timeout_slow_reader_is_held(short, open_port, models, monkeypatch):
    monkeypatch.setattr(http_timeouts.TimeoutProtocol, "_on_reader_timeout", lambda self: None)
    engine = models.kept["writer"].runner.engine
    link = knock(open_port, rcvbuf=4096)
    link.sendall(spoken("/v1/completions", LARGE, open_port))
    until(lambda: engine.rows)
    time.sleep(5 * SHORT)
    assert engine.rows
    link.close()
    until(lambda: engine.idle)


def test_slow_but_reading_client_gets_everything(open_port, models, monkeypatch):
    monkeypatch.setattr(http_timeouts, "SLOW_READER_TIMEOUT", 1.0)
    link = knock(open_port, rcvbuf=16384)
    link.sendall(spoken("/v1/completions", LARGE | {"max_tokens": 150}, open_port, connection="close"))
    said = b""
    while got := link.recv(16384):
        said += got
        time.sleep(0.01)
    assert b"data: [DONE]" in said


def test_refused_client_gets_the_response(open_port):
    """A response sent before the body is complete must not be lost when the socket closes."""
    link = knock(open_port)
    body = b'{"model": "' + b"a" * 3_000_000 + b'"}'
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    link.sendall(head + body)
    assert link.recv(65536).startswith(b"HTTP/1.1 413")


def test_endless_headers_get_431(open_port):
    link = knock(open_port)
    link.sendall(b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (i, b"a" * 900) for i in range(40)))
    said, _ = heard(link)
    assert said.startswith(b"HTTP/1.1 431")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("noise", [b"\x16\x03\x01\x02\x00\x01", b"hello\r\n\r\n", b"\0" * 99])
def test_invalid_http_gets_400(open_port, noise):
    link = knock(open_port)
    link.sendall(noise + b"\r\n\r\n")
    assert heard(link)[0].startswith(b"HTTP/1.1 400")


def test_pipelined_requests(open_port):
    link = knock(open_port)
    asked = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    link.sendall(asked * 4 + asked.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    assert heard(link)[0].count(b"HTTP/1.1 200") == 5


@pytest.mark.slow
def test_real_timeouts_are_below_ten_seconds(open_port):
    idle, trickler = knock(open_port), knock(open_port)
    trickler.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n")
    answered = knock(open_port)
    answered.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    began = time.monotonic()
    for link in (idle, trickler, answered):
        heard(link)
    assert 5 < time.monotonic() - began < 10
