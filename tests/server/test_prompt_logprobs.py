"""Log-probabilities of echoed prompts, as the requests of lm-eval's `local-completions` ask for them."""

import json
import math

import numpy as np
import pytest
import torch
from tests.server.tiny_server import read_events

import peasy

SCORING = {"model": "writer", "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
"""The fields that lm-eval sends with every prompt it scores."""


@pytest.fixture(scope="module")
def writer(folders):
    return peasy.load(folders[0])


@pytest.fixture(scope="module")
def long_ids(writer):
    return [int(id) for id in np.random.default_rng(0).integers(5, 300, 300)]


def post(client, **fields):
    response = client.post("/v1/completions", json=SCORING | fields)
    assert response.status_code == 200, response.text
    return response.json()


def reference(loaded, ids):
    """Log-probability of each token but the first, and whether it is the most likely one, from one forward pass."""
    with torch.inference_mode():
        logprobs = torch.log_softmax(loaded.model(torch.tensor([ids]))[0].double(), dim=-1)
    rows = range(len(ids) - 1)
    return [float(logprobs[row, ids[row + 1]]) for row in rows], [
        int(logprobs[row].argmax()) == ids[row + 1] for row in rows
    ]


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_prompt_logprobs_equal_a_forward_pass(client, writer, long_ids, max_tokens):
    """Across several prefill chunks, and again when a cache could have been used."""
    for _ in range(2):
        found = post(client, prompt=long_ids, max_tokens=max_tokens)
        scores = found["choices"][0]["logprobs"]
        expected, _ = reference(writer, long_ids)
        assert len(scores["token_logprobs"]) == len(long_ids) + max_tokens
        assert scores["token_logprobs"][0] is None
        assert scores["top_logprobs"][0] is None
        np.testing.assert_allclose(scores["token_logprobs"][1 : len(long_ids)], expected, atol=1e-4)
        assert found["usage"]["completion_tokens"] == max_tokens
        assert found["choices"][0]["finish_reason"] == "length"


def test_lm_eval_reads_loglikelihood_and_greediness(client, writer, long_ids):
    """A batch of contexts with continuations, as ids, read in lm-eval's way: the last token is the generated one."""
    with torch.inference_mode():
        best = int(writer.model(torch.tensor([long_ids[:20]]))[0, -1].argmax())
    requests = [(long_ids[:20], [best]), (long_ids[:20], [7]), (long_ids[20:25], long_ids[25:90])]
    found = post(client, prompt=[context + more for context, more in requests])
    for choice, (context, more) in zip(found["choices"], requests, strict=True):
        logprobs, greedy = reference(writer, context + more)
        kept = choice["logprobs"]["token_logprobs"][len(context) : -1]
        tops = choice["logprobs"]["top_logprobs"][len(context) : -1]
        assert math.isclose(sum(kept), sum(logprobs[len(context) - 1 :]), abs_tol=1e-3)
        assert all(token == max(top.values()) for token, top in zip(kept, tops, strict=True)) == all(
            greedy[len(context) - 1 :]
        )


def test_echoed_tokens_offsets_and_text_agree(client, writer):
    text = "the pizza came out"
    choice = post(client, prompt=text, max_tokens=3)["choices"][0]
    scores = choice["logprobs"]
    assert choice["text"].startswith(text)
    num_prompt = len(writer.encode_prompt(text))
    assert "".join(scores["tokens"][:num_prompt]) == text
    starts = [0, *np.cumsum([len(token) for token in scores["tokens"][:num_prompt]])]
    assert scores["text_offset"][: num_prompt + 1] == [int(start) for start in starts]
    without = post(client, prompt=text, max_tokens=3, echo=False)["choices"][0]
    assert choice["text"] == text + without["text"]
    np.testing.assert_allclose(scores["token_logprobs"][-3:], without["logprobs"]["token_logprobs"], atol=1e-6)


@pytest.mark.parametrize("fields", [{}, {"logprobs": None}, {"max_tokens": 0}])
def test_stream_of_an_echo_equals_the_whole_response(client, fields):
    whole = post(client, prompt="the pizza", **fields)["choices"][0]
    with client.stream(
        "POST", "/v1/completions", json=SCORING | fields | {"prompt": "the pizza", "stream": True}
    ) as got:
        events, done = read_events("".join(got.iter_text()))
    choices = [event["choices"][0] for event in events]
    assert done
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    if whole["logprobs"] is not None:
        scores = [score for choice in choices for score in choice["logprobs"]["token_logprobs"]]
        assert scores == whole["logprobs"]["token_logprobs"]


def test_max_tokens_0_without_echo_generates_nothing(client):
    found = post(client, prompt="the pizza", max_tokens=0, echo=False, logprobs=None)
    assert found["choices"][0]["text"] == ""
    assert found["usage"]["completion_tokens"] == 0


def test_scored_prompts_do_not_change_others_in_the_batch(client, writer, long_ids):
    """A scored prompt computes all positions; the choices of a request share nothing else."""
    found = post(client, prompt=[long_ids, [5, 6, 7]], n=2, max_tokens=4)
    alone = post(client, prompt=[5, 6, 7], max_tokens=4)["choices"][0]
    for choice in found["choices"][2:]:
        assert choice["text"] == alone["text"]
        np.testing.assert_allclose(
            choice["logprobs"]["token_logprobs"][1:], alone["logprobs"]["token_logprobs"][1:], atol=1e-5
        )


def test_prompt_of_an_encoder_decoder_is_not_scored(client):
    response = client.post("/v1/completions", json=SCORING | {"model": "translator", "prompt": "the pizza"})
    assert response.status_code == 400
    assert "log-probabilities" in response.json()["error"]["message"]


def test_harmless_fields_are_ignored_with_a_note(client):
    fields = {"user": "ada", "metadata": {"run": "1"}, "store": False, "ignore_eos": True, "service_tier": "auto"}
    response = client.post("/v1/completions", json=SCORING | fields | {"prompt": "the", "stream": False})
    assert response.status_code == 200
    assert response.json()["note"] == "Ignored: user, metadata, service_tier, ignore_eos."
    assert response.headers["x-peasy-ignored"] == "user, metadata, service_tier, ignore_eos"
    with client.stream("POST", "/v1/completions", json=SCORING | fields | {"prompt": "the", "stream": True}) as stream:
        assert stream.headers["x-peasy-ignored"]
    assert "note" not in client.post("/v1/completions", json=SCORING | {"prompt": "the"}).json()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]), ("tool_choice", "required"),
        ("functions", [{"name": "f"}]), ("response_format", {"type": "json_schema", "json_schema": {"name": "x"}}),
        ("response_format", {"type": "json_object"}), ("guided_json", {"type": "object"}),
        ("modalities", ["text", "audio"]), ("reasoning_effort", "high"),
    ],
)  # fmt: skip
def test_unsupported_fields_are_refused_by_name(client, name, value):
    body = {"model": "talker", "messages": [{"role": "user", "content": "hi"}], name: value}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert f"{name}" in response.json()["error"]["message"]
    assert "not supported" in response.json()["error"]["message"]


def test_empty_unsupported_fields_change_nothing(client):
    fields = {"tools": [], "tool_choice": "none", "modalities": ["text"], "parallel_tool_calls": False}
    body = {"model": "talker", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, **fields}
    assert client.post("/v1/chat/completions", json=body).status_code == 200


def test_not_finite_logits_end_only_the_scored_request(folders, long_ids):
    from peasy.generation.engine import Engine
    from peasy.generation.request import Request
    from peasy.generation.sampling_params import SamplingParams

    model = peasy.load(folders[0]).model
    engine, real = Engine(model), model.forward_varlen

    def broken(sequences, states, **options):
        return [
            logits * (torch.nan if 60 in ids else 1)
            for ids, logits in zip(sequences, real(sequences, states, **options), strict=True)
        ]

    model.forward_varlen = broken
    good = engine.submit(Request((5, 6, 7), SamplingParams(2, logprobs=1), scores_prompt=True))
    bad = engine.submit(Request((5, 60, 7), SamplingParams(2, logprobs=1), scores_prompt=True))
    while engine.step():
        pass
    assert [event.reason for event in good.pop_all() if hasattr(event, "reason")] == ["length"]
    assert [event.reason for event in bad.pop_all() if hasattr(event, "reason")] == ["error"]
    assert [scored is None for scored in good.prompt_logprobs] == [True, False, False]
    assert json.dumps([scored.logprob for scored in good.prompt_logprobs[1:]])
