"""Timeouts of slow senders, idle sockets and slow readers; each with its inverse.

The real timeouts are eight seconds; here they are shortened, and one slow test waits for the real ones.
"""

import json
import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from tests.server.tiny_server import connect, post_bytes, read_all, running_server, wait_until

from peasy.server import http_timeouts
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry

SHORT = 0.4
REQUEST = {"model": "writer", "prompt": "the", "max_tokens": 3, "temperature": 0}


@pytest.fixture
def models(folders):
    registry = ModelRegistry(folders[:1], weights="float32")
    registry.preload()
    return registry


@pytest.fixture
def short(monkeypatch):
    for name in ("IDLE_TIMEOUT", "REQUEST_TIMEOUT", "SLOW_READER_TIMEOUT"):
        monkeypatch.setattr(http_timeouts, name, SHORT)


@pytest.fixture
def open_port(models):
    with running_server(build_app(models, pages=False)) as port:
        yield port


def read_response(connection):
    """Return the next response, which is JSON, of a connection that stays open."""
    received = b""
    while not received.endswith(b"}"):
        received += (part := connection.recv(65536))
        assert part
    return received


def trickle(connection, data):
    """Send byte by byte until the server disconnects."""
    for letter in data:
        try:
            connection.sendall(bytes([letter]))
        except ConnectionError:
            return
        time.sleep(SHORT / 10)
    raise AssertionError("the server accepted all bytes")


def test_idle_socket_is_closed(short, open_port):
    received, seconds = read_all(connect(open_port))
    assert received == b""
    assert seconds > SHORT / 2


def test_far_too_many_connections_are_closed_at_once(models, monkeypatch):
    for name in ("IDLE_TIMEOUT", "REQUEST_TIMEOUT"):
        monkeypatch.setattr(http_timeouts, name, 3600.0)  # only the limit closes one
    monkeypatch.setattr(http_timeouts, "_MAX_REFUSED", 3)
    request = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    with running_server(build_app(models, pages=False), max_connections=5) as port:
        kept = [connect(port) for _ in range(8)]
        for _ in range(20):
            assert read_all(connect(port))[0] == b""
        kept[7].sendall(request)
        assert read_all(kept.pop())[0].startswith(b"HTTP/1.1 503")
        for connection in kept[3:]:
            connection.close()

        def answer():
            connection = connect(port)
            connection.sendall(request)
            return read_all(connection)[0]

        wait_until(lambda: answer().startswith(b"HTTP/1.1 200"))


def test_later_connections_do_not_shut_out_an_earlier_one(models, monkeypatch):
    for name in ("IDLE_TIMEOUT", "REQUEST_TIMEOUT"):
        monkeypatch.setattr(http_timeouts, name, 3600.0)
    request = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with running_server(build_app(models, pages=False), max_connections=2) as port:
        early = connect(port)
        early.sendall(request)
        assert read_response(early).startswith(b"HTTP/1.1 200")
        kept = [connect(port) for _ in range(4)]
        kept[-1].sendall(request)
        assert read_all(kept[-1])[0].startswith(b"HTTP/1.1 503")
        early.sendall(request)
        assert read_response(early).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("accepted_at_once", [3, 100])
def test_few_connections_are_accepted_before_they_are_counted(models, monkeypatch, accepted_at_once):
    """Each of them has taken a descriptor. With 100 instead of 3 in a step, all that have come are accepted first."""
    monkeypatch.setattr(http_timeouts, "ACCEPTED_AT_ONCE", accepted_at_once)
    accept, made = socket.socket.accept, http_timeouts.TimeoutProtocol.connection_made
    loops, uncounted, most = [], set(), 0

    def accept_counted(self):
        nonlocal most
        connection, address = accept(self)
        uncounted.add(address)
        most = max(most, len(uncounted))
        return connection, address

    def made_counted(self, transport):
        uncounted.discard(transport.get_extra_info("peername"))
        loops.append(self.loop)
        made(self, transport)

    monkeypatch.setattr(socket.socket, "accept", accept_counted)
    monkeypatch.setattr(http_timeouts.TimeoutProtocol, "connection_made", made_counted)
    with running_server(build_app(models, pages=False)) as port:
        first, gate = connect(port), threading.Event()
        wait_until(lambda: loops)
        loops[0].call_soon_threadsafe(gate.wait)
        others = [socket.socket() for _ in range(40)]
        for connection in others:
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
        gate.set()
        wait_until(lambda: len(loops) == 41)
        assert (most <= 12) == (accepted_at_once == 3)
        for connection in [first, *others]:
            connection.close()


@pytest.mark.parametrize(
    ("limits", "connections", "raised"),
    [
        ((256, 512), 156, [(512, 512)]), ((1024, -1), 1000, [(1356, -1)]), ((64, 64), 16, [(64, 64)]),
        ((20_000, 20_000), 1000, []), ((-1, -1), 1000, []),
    ],
)  # fmt: skip
def test_connections_leave_descriptors_for_files(monkeypatch, limits, connections, raised):
    changed = []
    resource = SimpleNamespace(RLIM_INFINITY=-1, RLIMIT_NOFILE=7, getrlimit=lambda kind: limits)
    resource.setrlimit = lambda kind, new: changed.append(new)
    monkeypatch.setitem(sys.modules, "resource", resource)
    assert http_timeouts.connection_limit() == connections
    assert changed == raised


def test_slow_headers_are_aborted(short, open_port):
    trickle(connect(open_port), b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 200)


def test_slow_body_is_aborted(short, open_port):
    connection = connect(open_port)
    head, _, body = post_bytes("/v1/completions", REQUEST, open_port).partition(b"\r\n\r\n")
    connection.sendall(head + b"\r\n\r\n")
    trickle(connection, body + b" " * 200)


def test_without_timeouts_slow_senders_stay(monkeypatch, short, open_port):
    monkeypatch.setattr(http_timeouts.TimeoutProtocol, "_abort", lambda self: None)
    connection = connect(open_port)
    for letter in "GET /health HTTP/1.1\r\n":
        connection.sendall(letter.encode())
        time.sleep(SHORT / 8)
    connection.sendall(b"host: localhost\r\nconnection: close\r\n\r\n")
    assert read_all(connection)[0].startswith(b"HTTP/1.1 200")


def test_keep_alive_and_idle_timeout(short, open_port):
    connection = connect(open_port)
    for _ in range(3):
        connection.sendall(post_bytes("/v1/completions", REQUEST, open_port))
        received = b""
        while not received.endswith(b"}}}"):
            received += connection.recv(65536)
        assert received.startswith(b"HTTP/1.1 200")
    assert read_all(connection)[0] == b""


def test_long_responses_have_no_timeout(short, open_port, models, monkeypatch):
    engine = models.loaded["writer"].engine_thread.engine
    step = engine.step
    monkeypatch.setattr(engine, "step", lambda: (time.sleep(SHORT), step())[1])
    connection = connect(open_port)
    connection.sendall(post_bytes("/v1/completions", REQUEST | {"max_tokens": 5}, open_port, connection="close"))
    received, seconds = read_all(connection)
    assert received.startswith(b"HTTP/1.1 200")
    assert seconds > 2 * SHORT


LARGE = REQUEST | {"max_tokens": 4000, "stream": True, "logprobs": 20, "attention": {"keys": 256}}


def test_slow_reader_is_disconnected(short, open_port, models):
    engine = models.loaded["writer"].engine_thread.engine
    connection = connect(open_port, rcvbuf=4096)
    connection.sendall(post_bytes("/v1/completions", LARGE, open_port))
    wait_until(lambda: engine.running)
    wait_until(lambda: engine.idle)  # and its memory is freed
    connection.close()


def test_without_timeout_slow_reader_is_held(short, open_port, models, monkeypatch):
    monkeypatch.setattr(http_timeouts.TimeoutProtocol, "_on_reader_timeout", lambda self: None)
    engine = models.loaded["writer"].engine_thread.engine
    connection = connect(open_port, rcvbuf=4096)
    connection.sendall(post_bytes("/v1/completions", LARGE, open_port))
    wait_until(lambda: engine.running)
    time.sleep(5 * SHORT)
    assert engine.running
    connection.close()
    wait_until(lambda: engine.idle)


def test_slow_but_reading_client_gets_everything(open_port, models, monkeypatch):
    monkeypatch.setattr(http_timeouts, "SLOW_READER_TIMEOUT", 1.0)
    connection = connect(open_port, rcvbuf=16384)
    connection.sendall(post_bytes("/v1/completions", LARGE | {"max_tokens": 150}, open_port, connection="close"))
    received = b""
    while got := connection.recv(16384):
        received += got
        time.sleep(0.01)
    assert b"data: [DONE]" in received


def test_refused_client_gets_the_response(open_port):
    """A response sent before the body is complete must not be lost when the socket closes."""
    connection = connect(open_port)
    body = b'{"model": "' + b"a" * 3_000_000 + b'"}'
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    connection.sendall(head + body)
    assert connection.recv(65536).startswith(b"HTTP/1.1 413")


def test_endless_headers_get_431(open_port):
    connection = connect(open_port)
    connection.sendall(b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (i, b"a" * 900) for i in range(40)))
    received, _ = read_all(connection)
    assert received.startswith(b"HTTP/1.1 431")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "head",
    [b"GET /" + b"a" * 17_000, b"GET /health?" + b"a" * 17_000, b"GET /health HTTP/1.1\r\nx: " + b"a" * 17_000],
)
def test_large_heads_get_431(open_port, monkeypatch, head):
    """Also if all of it arrives at once, and whichever part is large."""
    request = head + (b"" if b" HTTP" in head else b" HTTP/1.1") + b"\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    connection = connect(open_port)
    connection.sendall(request)
    assert read_all(connection)[0].startswith(b"HTTP/1.1 431 ")
    monkeypatch.setattr(http_timeouts, "MAX_HEAD_BYTES", 10**9)
    connection = connect(open_port)
    connection.sendall(request)
    assert read_all(connection)[0].startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 404 "))


@pytest.mark.parametrize("noise", [b"\x16\x03\x01\x02\x00\x01", b"hello\r\n\r\n", b"\0" * 99])
def test_invalid_http_gets_400(open_port, noise):
    connection = connect(open_port)
    connection.sendall(noise + b"\r\n\r\n")
    assert read_all(connection)[0].startswith(b"HTTP/1.1 400")


def test_pipelined_requests(open_port):
    connection = connect(open_port)
    request = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    connection.sendall(request * 4 + request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    assert read_all(connection)[0].count(b"HTTP/1.1 200") == 5


@pytest.mark.slow
def test_real_timeouts_are_below_ten_seconds(open_port):
    idle, trickler = connect(open_port), connect(open_port)
    trickler.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n")
    answered = connect(open_port)
    answered.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    began = time.monotonic()
    for connection in (idle, trickler, answered):
        read_all(connection)
    assert 5 < time.monotonic() - began < 10


POST, GET = (line + b" HTTP/1.1\r\nhost: localhost\r\n" for line in (b"POST /", b"GET /health"))
NOTHING = b"0\r\n\r\n"
"""Chunked body without contents."""

AMBIGUOUS = {
    "both lengths": POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n" + NOTHING,
    "both, other order": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + NOTHING,
    "two lengths": POST + b"content-length: 1\r\ncontent-length: 1\r\n\r\nx",
    "two equal lengths in one header": POST + b"content-length: 1, 1\r\n\r\nx",
    "two codings": POST + b"transfer-encoding: chunked\r\ntransfer-encoding: x\r\n\r\n" + NOTHING,
    "coding before 1.1": b"POST / HTTP/1.0\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n" + NOTHING,
    "bare line feeds": b"GET /health HTTP/1.1\nhost: localhost\n\n",
    "one bare line feed": b"GET /health HTTP/1.1\r\nhost: localhost\nx: y\r\n\r\n",
    "bare line feed at the end": GET + b"x: y\n\r\n",
    "bare carriage return": GET + b"x: a\rcontent-length: 5\r\n\r\n",
    "folded header": GET + b"x: a\r\n b\r\n\r\n",
    "header folded by a tab": GET + b"x: a\r\n\tb\r\n\r\n",
    "folded first header": b"GET /health HTTP/1.1\r\n host: localhost\r\n\r\n",
    "space before the colon": b"GET /health HTTP/1.1\r\nhost : localhost\r\n\r\n",
    "control character": GET + b"x: a\x01\r\n\r\n",
    "carriage return after the size of a chunk": POST + b"transfer-encoding: chunked\r\n\r\n1;a\rb\r\nx\r\n" + NOTHING,
    "line feed after the size of a chunk": POST + b"transfer-encoding: chunked\r\n\r\n1;a\nb\r\nx\r\n" + NOTHING,
    "space after the size of a chunk": POST + b"transfer-encoding: chunked\r\n\r\n1 \r\nx\r\n" + NOTHING,
    "target with a host": b"GET http://localhost/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "target with another host": b"GET http://evil.com/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "target without a slash": b"GET health HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "later version": b"GET /health HTTP/1.2\r\nhost: localhost\r\n\r\n",
    "version 2": b"GET /health HTTP/2.0\r\nhost: localhost\r\n\r\n",
    "version 0": b"GET /health HTTP/0.9\r\nhost: localhost\r\n\r\n",
    "two hosts": GET + b"Host: evil.com\r\n\r\n",
    "two keys": GET + b"authorization: Bearer wrong\r\nAuthorization: Bearer right\r\n\r\n",
    "two origins": GET + b"origin: http://evil.com\r\norigin: http://localhost\r\n\r\n",
    "two cookies": GET + b"cookie: peasy=a\r\ncookie: peasy=b\r\n\r\n",
    "two content types": GET + b"content-type: text/plain\r\ncontent-type: application/json\r\n\r\n",
    "two sites": GET + b"sec-fetch-site: cross-site\r\nsec-fetch-site: same-origin\r\n\r\n",
    "trailer with a bare line feed": POST + b"transfer-encoding: chunked\r\n\r\n0\r\nx: y\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_requests_get_400_and_the_connection_is_closed(open_port, name):
    """Whatever follows on the connection is not read as a request."""
    connection = connect(open_port)
    connection.sendall(AMBIGUOUS[name] + b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    received, _ = read_all(connection)
    assert received.count(b"HTTP/1.1 ") <= 1
    assert received.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ")) or (not received and "trailer" in name)
    assert b"200 OK" not in received


def test_ambiguous_requests_split_into_bytes_are_refused_too(open_port):
    connection = connect(open_port)
    for letter in AMBIGUOUS["one bare line feed"]:
        connection.sendall(bytes([letter]))
    assert read_all(connection)[0].startswith(b"HTTP/1.1 400 ")


def test_without_the_strict_buffer_they_would_be_read(open_port, monkeypatch):
    monkeypatch.setattr(http_timeouts, "_check_head", lambda head, is_trailer: None)
    connection = connect(open_port)
    connection.sendall(AMBIGUOUS["one bare line feed"])
    assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_plain_and_chunked_requests_are_read(open_port):
    body = json.dumps(REQUEST).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    chunked = head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    trailer = chunked[:-2] + b"x-checksum: 1\r\n\r\n"
    for request in (chunked, trailer, head + b"content-length: %d\r\n\r\n%s" % (len(body), body)):
        connection = connect(open_port)
        connection.sendall(request)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(("size", "status"), [(1, b"400"), (2, b"200")])
def test_body_of_very_many_chunks_is_refused(open_port, monkeypatch, size, status):
    """Reading a chunk takes the same time whatever its size: tiny ones would hold the event loop for seconds."""
    body = json.dumps(REQUEST).encode()
    monkeypatch.setattr(http_timeouts, "_MAX_CHUNKS", len(body) - 1)
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    connection = connect(open_port)
    for _ in range(2 if status == b"200" else 1):  # the count begins again with each request
        chunked = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
        connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n" + chunked + b"0\r\n\r\n")
        assert read_response(connection).startswith(b"HTTP/1.1 " + status)
