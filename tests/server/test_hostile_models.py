"""A served model with a hostile tokenizer harms only its own requests; a stream that waits sends comments."""

import time

import pytest
from fastapi.testclient import TestClient
from tests.server.tiny_server import LOCAL, read_events

import peasy
from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.config import DecoderConfig
from peasy.nn import config as nn_config
from peasy.server import session
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry
from peasy.tokenization import Tokenizer

PIECES = [["<unk>", 0.0], *(["a" * count, -float(count)] for count in range(1, 3000))]


@pytest.fixture(scope="module")
def registry(folders, tmp_path_factory):
    bomb = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": None, "post_processor": None, "decoder": None,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": PIECES, "byte_fallback": False},
    }  # fmt: skip
    stack = nn_config.StackConfig(1, nn_config.AttentionConfig(2), nn_config.MLPConfig(16), nn_config.LayerNormConfig())
    model = build(DecoderConfig(len(PIECES), 8, stack, None, nn_config.RotaryConfig()), seed=1)
    hostile = save_model(tmp_path_factory.mktemp("hostile") / "hostile", model, Tokenizer(bomb))
    return ModelRegistry([folders[0], hostile], weights="float32")


@pytest.fixture(scope="module")
def client(registry):
    with TestClient(build_app(registry, pages=False), base_url=LOCAL) as client:
        yield client


def test_a_text_that_explodes_ends_only_its_own_request(client, capfd):
    fields = {"max_tokens": 2, "temperature": 0}
    bad = client.post("/v1/completions", json={"model": "hostile", "prompt": "a" * 30_000} | fields)
    assert bad.status_code == 400
    assert "was stopped" in bad.json()["error"]["message"]
    assert client.post("/v1/completions", json={"model": "hostile", "prompt": "aaa"} | fields).status_code == 200
    assert client.post("/v1/completions", json={"model": "writer", "prompt": "the"} | fields).status_code == 200
    assert "panicked" not in capfd.readouterr().err


def test_foreign_tokenizers_never_block_the_event_loop(registry, client):
    client.post("/v1/completions", json={"model": "hostile", "prompt": "a", "max_tokens": 1})
    client.post("/v1/completions", json={"model": "writer", "prompt": "a", "max_tokens": 1})
    assert registry.is_ready("writer")
    assert not registry.is_ready("hostile"), "it would be tokenized on the event loop"


def test_a_stream_that_waits_sends_comments(client, registry, folders, monkeypatch):
    monkeypatch.setattr(session, "KEEP_ALIVE_SECONDS", 0.05)
    client.post("/v1/completions", json={"model": "writer", "prompt": "the", "max_tokens": 1})  # loads the model
    engine = registry.loaded["writer"].engine_thread.engine
    step = engine.step
    monkeypatch.setattr(engine, "step", lambda: (time.sleep(0.3), step())[1])
    body = {"model": "writer", "prompt": "the pizza", "max_tokens": 3, "temperature": 0, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as response:
        text = "".join(response.iter_text())
    events, done = read_events(text)
    assert ": keep-alive\n\n" in text
    assert done
    written = "".join(event["choices"][0]["text"] for event in events)
    assert written == peasy.generate(peasy.load(folders[0]), "the pizza", max_tokens=3, weights="float32").texts[0]
