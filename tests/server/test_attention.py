"""`attention` of /v1/completions: matches `look` on the same text."""

import numpy as np
import pytest

import peasy


def complete(client, **more):
    body = {"model": "writer", "prompt": "the pizza came", "max_tokens": 3, "temperature": 0} | more
    return client.post("/v1/completions", json=body)


def test_top_keys_match_look(client, folders):
    loaded = peasy.load(folders[0])
    prompt = loaded.encode_prompt("the pizza came")
    choice = complete(client, attention={"layers": [1], "heads": [0, 1], "keys": 3}).json()["choices"][0]
    attention = choice["attention"]
    ids = [loaded.tokenizer.id(loaded.tokenizer.token(piece.id)) for piece in _pieces(loaded)]
    seen = loaded.look([*prompt, *ids], layers=[1])
    assert [entry["position"] for entry in attention] == [0, 1, 2]
    for entry in attention:
        row = len(prompt) - 1 + entry["position"]
        assert [(head["layer"], head["head"]) for head in entry["heads"]] == [(1, 0), (1, 1)]
        for head in entry["heads"]:
            weights = np.asarray(seen.weights[1, head["head"]])[row, : row + 1]
            best = np.argsort(-weights)[:3]
            assert [key["position"] for key in head["keys"]] == best.tolist()
            np.testing.assert_allclose([key["weight"] for key in head["keys"]], weights[best], atol=1e-5)


def _pieces(loaded):
    return peasy.generate(loaded, "the pizza came", max_tokens=3, weights="float32").completions[0].tokens


def test_keys_have_their_tokens(client, folders):
    loaded = peasy.load(folders[0])
    pieces = [loaded.tokenizer.piece(id) for id in loaded.encode_prompt("the pizza came")] + [
        p.piece for p in _pieces(loaded)
    ]
    for entry in complete(client, attention={"keys": 256}).json()["choices"][0]["attention"]:
        assert entry["token"] == pieces[len(pieces) - 3 + entry["position"]]
        for head in entry["heads"]:
            assert all(key["token"] == pieces[key["position"]] for key in head["keys"])
            assert sum(key["weight"] for key in head["keys"]) == pytest.approx(1, abs=1e-4)


def test_stream_has_attention_per_token(client):
    from tests.server.tiny_server import read_events

    whole = complete(client, attention={"layers": [0]}).json()["choices"][0]["attention"]
    events, ended = read_events(complete(client, attention={"layers": [0]}, stream=True).text)
    assert ended
    assert [entry for event in events for entry in event["choices"][0]["attention"]] == whole


def test_encoder_decoder_returns_cross_attention(client, folders):
    attention = complete(client, model="translator", prompt="the pizza", attention={}).json()["choices"][0]["attention"]
    cross = [head for entry in attention for head in entry["heads"] if head["part"] == "cross_attention"]
    assert cross
    assert {key["token"] for head in cross for key in head["keys"]} <= {"the", "pizza"}


def test_unknown_layers_are_refused(client):
    response = complete(client, attention={"layers": [9]})
    assert response.status_code == 400
    assert "layer 9" in response.json()["error"]["message"]
    assert "attention" not in complete(client).json()["choices"][0]
