"""Metrics and access log: no prompts unless requested."""

import json
import logging
import re

import pytest
from fastapi.testclient import TestClient
from tests.server.tiny_server import LOCAL

from peasy.server.app import build_app
from peasy.server.metrics import LOG, JsonFormatter

SECRET = "xyzzy-the-secret-words"


@pytest.fixture
def lines(caplog):
    LOG.propagate = True
    with caplog.at_level(logging.INFO, logger="peasy.server"):
        yield lambda: [
            json.loads(JsonFormatter().format(record)) for record in caplog.records if record.name == LOG.name
        ]


def send_requests(client):
    client.post("/v1/completions", json={"model": "writer", "prompt": SECRET, "max_tokens": 2})
    client.post("/v1/completions", json={"model": "writer", "prompt": SECRET, "max_tokens": 2, "stream": True})
    client.post("/v1/completions", json={"model": SECRET, "prompt": "a"})
    client.post("/v1/embeddings", json={"model": "encoder", "input": SECRET})
    client.post("/api/explain", json={"source": f"{SECRET} and more"})
    client.get(f"/v1/models/{SECRET}")
    client.get(f"/{SECRET}?x={SECRET}")
    client.request(SECRET.upper(), "/health")


def test_metrics_and_log_contain_no_prompts(registry, lines):
    app = build_app(registry, pages=False)
    client = TestClient(app, base_url=LOCAL)
    send_requests(client)
    metrics = client.get("/metrics").text
    assert SECRET not in metrics.lower()
    assert SECRET not in json.dumps(lines()).lower()
    assert len(lines()) == 9
    first = lines()[0]
    assert first["route"] == "/v1/completions"
    assert (first["status"], first["model"], first["completion_tokens"]) == (200, "writer", 2)
    assert first["id"]
    assert first["ms"] > 0


def test_log_prompts_writes_prompts(registry, lines):
    send_requests(TestClient(build_app(registry, pages=False, log_prompts=True), base_url=LOCAL))
    assert lines()[0]["prompt"] == SECRET


def test_metrics_count_requests_and_tokens(registry):
    client = TestClient(build_app(registry, pages=False), base_url=LOCAL)
    before = _numbers(client.get("/metrics").text)
    for _ in range(3):
        client.post("/v1/completions", json={"model": "writer", "prompt": "the", "max_tokens": 5, "temperature": 0})
    client.post("/v1/completions", json={"model": "writer", "prompt": "the", "max_tokens": 0})
    client.post("/v1/completions", json={"model": "writer", "prompt": "the", "max_tokens": -1})
    after = _numbers(client.get("/metrics").text)
    generated = 'peasy_engine_generated_tokens_total{model="writer"}'
    assert after[generated] - before.get(generated, 0) == 15
    route = 'method="POST",route="/v1/completions"'
    assert after[f'peasy_requests_total{{{route},status="200"}}'] == 4
    assert after[f'peasy_requests_total{{{route},status="400"}}'] == 1
    assert after['peasy_request_seconds_count{route="/v1/completions"}'] == 5
    assert after['peasy_engine_running_sequences{model="writer"}'] == 0
    assert after["process_open_fds"] > 0


def _numbers(text):
    """Return each value by its name and labels, read line by line."""
    numbers = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) [a-z_:]+ .+", line)
        else:
            matched = re.fullmatch(r'([a-z_]+(?:\{(?:[a-z]+="(?:[^"\\]|\\.)*",?)*\})?) ([-+0-9.e]+)', line)
            assert matched, line
            numbers[matched[1]] = float(matched[2])
    return numbers


def test_every_response_has_a_request_id(client):
    first, second = client.get("/health"), client.get("/health")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


HOSTILE = ("\x1b]0;owned\x07", "\x9b31m", "\u202egnp.exe", "a\r\n{}", "\ud800", "\u2028", "\x7f")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_line_of_the_log_controls_a_terminal(text):
    """Names of models, messages of exceptions and prompts may hold anything; each is one line of printable ASCII."""
    try:
        raise ValueError(text)
    except ValueError as error:
        failure = (type(error), error, None)
    record = logging.LogRecord("x", logging.ERROR, "", 0, f"event {text}", None, failure)
    record.fields = {"model": text, text: text}
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["model"] == text
