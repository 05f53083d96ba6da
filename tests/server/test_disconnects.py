"""A client that leaves in any phase of its request: sequences, queue, memory and the model come back."""

import socket
import struct
import threading

import pytest
from tests.server.tiny_server import connect, post_bytes, read_all, running_server, wait_until

from peasy.generation.limits import EngineLimits
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry

LONG = [5] * 3000
BODY = {"model": "writer", "prompt": "the pizza", "temperature": 0, "max_tokens": 3000, "stream": True}


class Served:
    """Running server with an engine that can be held before its next step."""

    def __init__(self, folders):
        limits = EngineLimits(max_num_seqs=2, prefill_chunk=64, kv_cache_bytes=2**26)
        self.registry = ModelRegistry(folders[:1], weights="float32", limits=limits)
        self.registry.preload()
        self.entry = self.registry.loaded["writer"]
        self.engine = self.entry.engine_thread.engine
        self.app = build_app(self.registry, pages=False)
        self.may_step, step = threading.Event(), self.engine.step
        self.may_step.set()
        self.engine.step = lambda: (self.may_step.wait(120), step())[1]

    def is_free(self):
        state = self.engine.snapshot()
        names = ("running_sequences", "queued_requests", "queued_tokens", "reserved_bytes")
        in_flight = self.app.state.metrics.in_flight._value.get()
        return not any(state[name] for name in names) and not self.entry.num_users and not in_flight


@pytest.fixture(scope="module")
def served(folders):
    return Served(folders)


@pytest.fixture(scope="module")
def port(served):
    with running_server(served.app) as port:
        yield port


def leave(link, reset):
    """Close a connection: in the usual way, or with a reset, as a client that was killed does."""
    if reset:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def in_headers(served, port, link, body):
    link.sendall(post_bytes("/v1/completions", body, port)[:60])


def in_body(served, port, link, body):
    link.sendall(post_bytes("/v1/completions", body, port)[:-20])
    wait_until(lambda: served.app.state.metrics.in_flight._value.get())


def in_queue(served, port, link, body):
    served.may_step.clear()
    others = [connect(port) for _ in range(3)]
    for other in others:
        other.sendall(post_bytes("/v1/completions", body, port))
    wait_until(lambda: served.engine.snapshot()["queued_requests"] + served.engine.snapshot()["running_sequences"] >= 3)
    link.sendall(post_bytes("/v1/completions", body, port))
    wait_until(lambda: served.entry.num_users == 4)
    for other in others:
        other.close()


def in_prefill(served, port, link, body):
    link.sendall(post_bytes("/v1/completions", body | {"prompt": LONG}, port))
    wait_until(lambda: any(0 < sequence.num_computed < 2900 for sequence in list(served.engine.running)))


def in_decoding(served, port, link, body):
    before = served.engine.stats.generated_tokens
    link.sendall(post_bytes("/v1/completions", body, port))
    wait_until(lambda: served.engine.stats.generated_tokens > before + 3)


def at_the_end(served, port, link, body):
    """All tokens are generated and sent, but not read."""
    before = sum(served.engine.stats.finished.values())
    link.sendall(post_bytes("/v1/completions", body | {"max_tokens": 4}, port))
    wait_until(lambda: sum(served.engine.stats.finished.values()) > before)


PHASES = (in_headers, in_body, in_queue, in_prefill, in_decoding, at_the_end)


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("fields", [{}, {"stream": False}, {"n": 2}], ids=["stream", "whole", "two choices"])
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
def test_all_is_free_after_a_disconnect(served, port, phase, fields, reset):
    for _ in range(2):
        link = connect(port)
        phase(served, port, link, BODY | fields)
        leave(link, reset)
        served.may_step.set()
        wait_until(served.is_free)
    with connect(port) as link:  # and the next request is served
        link.sendall(post_bytes("/v1/completions", BODY | {"max_tokens": 3}, port, connection="close"))
        answer = read_all(link)[0]
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"[DONE]" in answer
    wait_until(served.is_free)


def test_what_runs_is_not_free(served, port):
    """Inverse: while a request runs, the condition of the tests above is false."""
    served.may_step.clear()
    with connect(port) as link:
        link.sendall(post_bytes("/v1/completions", BODY, port))
        wait_until(lambda: served.entry.num_users)
        assert not served.is_free()
    served.may_step.set()
    wait_until(served.is_free)
