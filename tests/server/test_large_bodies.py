"""Large bodies: lists are counted before they are read, and long work leaves other requests alone."""

import json
import threading

import pytest
from tests.server.tiny_server import connect, post_bytes, read_all, running_server, wait_until

from peasy.server import guard
from peasy.server.app import build_app
from peasy.server.guard import HTTPRefusal, check_structure
from peasy.server.model_registry import ModelRegistry
from peasy.tokenization import Tokenizer, train_tokenizer

LONG = "the pizza came out of the oven " * 600


@pytest.fixture(scope="module")
def port(folders):
    registry = ModelRegistry(folders, weights="float32")
    registry.preload()
    with running_server(build_app(registry, pages=False)) as port:
        yield port


def get_health(port):
    with connect(port) as link:
        link.sendall(f"GET /health HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\n\r\n".encode())
        return read_all(link)[0]


def blocking(function, entered, resume):
    def wait(*arguments, **options):
        entered.set()
        assert resume.wait(120)
        return function(*arguments, **options)

    return wait


REQUESTS = {
    "completions": ("/v1/completions", {"model": "writer", "prompt": LONG, "max_tokens": 1}),
    "completions of a batch": ("/v1/completions", {"model": "writer", "prompt": [LONG[:6000]] * 4, "max_tokens": 1}),
    "chat": ("/v1/chat/completions", {"model": "talker", "messages": [{"role": "user", "content": LONG}]}),
    "embeddings": ("/v1/embeddings", {"model": "encoder", "input": [LONG] * 2}),
    "tokenize": ("/tokenize", {"model": "writer", "prompt": LONG}),
    "tokens with words": ("/api/tokenize", {"model": "writer", "text": LONG}),
    "look": ("/api/look", {"model": "writer", "text": LONG}),
    "generate": ("/api/generate", {"model": "writer", "prompt": LONG, "max_tokens": 1}),
}


def answered_meanwhile(port, path, body, entered, resume):
    """Send a request that waits in the middle of its work; return the response of another one meanwhile."""
    with connect(port) as link:
        link.sendall(post_bytes(path, body, port, connection="close"))
        assert entered.wait(120)
        try:
            return get_health(port)
        finally:
            resume.set()
            assert read_all(link)[0].startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("name", REQUESTS)
def test_another_request_is_answered_while_a_long_text_is_tokenized(port, monkeypatch, name):
    entered, resume = threading.Event(), threading.Event()
    monkeypatch.setattr(Tokenizer, "_encode", blocking(Tokenizer._encode, entered, resume))
    assert answered_meanwhile(port, *REQUESTS[name], entered, resume).startswith(b"HTTP/1.1 200 ")


def test_another_request_is_answered_while_a_large_body_is_checked(port, monkeypatch):
    entered, resume = threading.Event(), threading.Event()
    check = check_structure
    monkeypatch.setattr(
        guard,
        "check_structure",
        lambda body: blocking(check, entered, resume)(body) if len(body) > 9000 else check(body),
    )
    body = {"model": "writer", "prompt": [[1]] * 30_000}
    assert answered_meanwhile(port, "/v1/completions", body, entered, resume).startswith(b"HTTP/1.1 200 ")


def test_short_bodies_need_no_thread(port, monkeypatch):
    """Inverse of the one before: what is small is checked at once."""
    threads = []
    monkeypatch.setattr(guard, "check_structure", lambda body: threads.append(threading.current_thread().name))
    with connect(port) as link:
        link.sendall(post_bytes("/tokenize", {"model": "writer", "prompt": "a"}, port, connection="close"))
        assert read_all(link)[0].startswith(b"HTTP/1.1 200 ")
    assert threads
    assert not any("asyncio" in name for name in threads)


def test_the_library_encodes_long_texts_without_holding_the_interpreter():
    """The library's `encode` holds it, `encode_batch` does not; both give the same tokens."""
    tokenizer = train_tokenizer([LONG[:500]] * 9, "bpe", 300)
    expected = tokenizer._backend.encode(LONG)

    class Backend:
        encode_batch, encode_batch_fast = tokenizer._backend.encode_batch, tokenizer._backend.encode_batch_fast

        def encode(self, text, **options):
            raise AssertionError("every other thread waits meanwhile")

    tokenizer._backend = Backend()
    assert tokenizer.encode(LONG).ids == tuple(expected.ids)
    assert list(tokenizer.encode(LONG).offsets) == expected.offsets
    with pytest.raises(Exception, match="every other thread waits"):
        tokenizer.encode("the pizza")


def nested(levels):
    return "[" * levels + "]" * levels


REFUSED = {
    "many lists": "[" + ",".join(["[]"] * 4096) + "]",
    "many objects": "[" + ",".join(["{}"] * 4096) + "]",
    "deep": nested(33),
    "deep after a string with brackets": '["]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", ' + nested(32) + "]",
    "deep after an escaped quote": '["\\"]]]]]]]]]]]]", ' + nested(32) + "]",
    "deep after a backslash": '["\\\\", ' + nested(32) + ', "]"]',
    "lists without end": "[" * 100_000,
    "UTF-16": nested(3).encode("utf-16-le"),
    "UTF-32": nested(40).encode("utf-32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_structures_are_refused_before_they_are_parsed(name):
    text = REFUSED[name]
    with pytest.raises(HTTPRefusal) as refused:
        check_structure(text if isinstance(text, bytes) else text.encode())
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "text",
    [
        nested(32),
        "[" + ",".join(["[]"] * 4095) + "]",
        json.dumps({"prompt": "[{" * 200_000}),
        json.dumps({"prompt": ['"[' * 50_000, "\\" * 1001, '\\"[{"' * 10_000]}),
        '"' + "[" * 9999,
        '"' + '\\"[' * 300_000,  # a string without end, whose every quote could begin another one
        '"' + "[" * 99 + "\\",
    ],
)
def test_brackets_in_strings_and_all_within_the_limits_pass(text):
    check_structure(text.encode())


@pytest.mark.parametrize(
    "path", ["/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/api/explain", "/nothing"]
)
def test_bodies_of_lists_get_400_from_every_path(port, path):
    with connect(port) as link:
        link.sendall(post_bytes(path, {"model": "writer", "prompt": [[]] * 30_000}, port, connection="close"))
        answer = read_all(link)[0]
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"more than 4,096 lists and objects" in answer


def test_a_client_that_leaves_while_its_body_is_checked_leaves_nothing(port, monkeypatch):
    entered, resume = threading.Event(), threading.Event()
    monkeypatch.setattr(guard, "check_structure", blocking(check_structure, entered, resume))
    monkeypatch.setattr(guard, "_LARGE_BODY_BYTES", 10)
    with connect(port) as link:
        link.sendall(post_bytes("/v1/completions", {"model": "writer", "prompt": LONG, "max_tokens": 9}, port))
        assert entered.wait(120)
    resume.set()
    monkeypatch.undo()
    wait_until(lambda: b'"status":"ok"' in get_health(port))
