"""OpenAI client over a real socket: results match offline generation."""

import base64

import numpy as np
import openai
import pytest

import peasy


@pytest.fixture(scope="module")
def ask(port):
    return openai.OpenAI(base_url=f"http://localhost:{port}/v1", api_key="any", max_retries=0)


@pytest.fixture(scope="module")
def writer(folders):
    return peasy.load(folders[0])


def offline(loaded, text, **options):
    return peasy.generate(loaded, text, weights="float32", **options).texts


def test_models_are_listed_and_retrieved(ask):
    assert [model.id for model in ask.models.list()] == ["writer", "talker", "translator", "encoder"]
    assert ask.models.retrieve("talker").id == "talker"
    with pytest.raises(openai.NotFoundError, match="Did you mean writer"):
        ask.models.retrieve("wrter")


def test_completion_matches_offline_generation(ask, writer):
    found = ask.completions.create(model="writer", prompt="the pizza", max_tokens=12, temperature=0)
    assert found.choices[0].text == offline(writer, "the pizza", max_tokens=12)[0]
    assert found.choices[0].finish_reason == "length"
    assert found.usage.prompt_tokens == len(writer.encode_prompt("the pizza"))
    assert found.usage.completion_tokens == 12
    assert found.usage.total_tokens == found.usage.prompt_tokens + 12


def test_seed_n_and_several_prompts(ask, writer):
    texts = ["the pizza", "hello"]
    options = {"max_tokens": 9, "temperature": 0.9, "seed": 5, "top_p": 0.9}
    found = ask.completions.create(model="writer", prompt=texts, n=3, **options)
    assert [choice.index for choice in found.choices] == list(range(6))
    assert [choice.text for choice in found.choices] == offline(writer, texts, n=3, **options)
    again = ask.completions.create(model="writer", prompt=texts, n=3, **options)
    other = ask.completions.create(model="writer", prompt=texts, n=3, **(options | {"seed": 6}))
    assert [choice.text for choice in again.choices] == [choice.text for choice in found.choices]
    assert [choice.text for choice in other.choices] != [choice.text for choice in found.choices]


def test_stream_has_the_same_text_and_usage(ask, writer):
    stream = ask.completions.create(
        model="writer", prompt="the pizza", max_tokens=12, temperature=0, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == offline(writer, "the pizza", max_tokens=12)[0]
    assert len(chunks) > 8
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "length"]
    assert not last.choices
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (len(writer.encode_prompt("the pizza")), 12)


def test_prompt_as_token_ids(ask, writer):
    ids = writer.encode_prompt("the pizza")
    by_ids = ask.completions.create(model="writer", prompt=ids, max_tokens=6, temperature=0)
    by_text = ask.completions.create(model="writer", prompt="the pizza", max_tokens=6, temperature=0)
    assert by_ids.choices[0].text == by_text.choices[0].text
    with pytest.raises(openai.BadRequestError, match="no token 4000"):
        ask.completions.create(model="writer", prompt=[4000], max_tokens=6)
    for prompt, message in (([1, -1], "prompt.1: .*greater"), ([1, "a"], "prompt.1: .*integer"), ([], "at least 1")):
        with pytest.raises(openai.BadRequestError, match=message):
            ask.completions.create(model="writer", prompt=prompt)


def test_stop_logit_bias_and_echo(ask, writer):
    whole = offline(writer, "the pizza", max_tokens=16)[0]
    stop = whole[5:8]
    found = ask.completions.create(model="writer", prompt="the pizza", max_tokens=16, temperature=0, stop=[stop])
    assert found.choices[0].text == whole[: whole.find(stop)]
    assert found.choices[0].finish_reason == "stop"
    wanted = writer.encode_prompt("oven")[0]
    forced = ask.completions.create(
        model="writer", prompt="the", max_tokens=2, temperature=0, logit_bias={str(wanted): 100}, echo=True
    )
    assert forced.choices[0].text == "the" + writer.output_tokenizer().decode([wanted] * 2)


def test_logit_bias_of_minus_100_bans_a_token(ask, writer):
    first = peasy.generate(writer, "the", max_tokens=1, logprobs=0).completions[0].tokens[0].id
    found = ask.completions.create(
        model="writer", prompt="the", max_tokens=1, temperature=0, logprobs=1, logit_bias={str(first): -100}
    )
    assert found.choices[0].logprobs.tokens != list(found.choices[0].logprobs.top_logprobs[0])


def test_logprobs_match_the_model(ask, writer):
    found = ask.completions.create(model="writer", prompt="the", max_tokens=4, temperature=0, logprobs=3).choices[0]
    pieces = peasy.generate(writer, "the", max_tokens=4, logprobs=3, weights="float32").completions[0].tokens
    np.testing.assert_allclose(
        np.exp(found.logprobs.token_logprobs), [piece.probability for piece in pieces], rtol=1e-5
    )
    assert [len(top) for top in found.logprobs.top_logprobs] == [3] * 4
    assert found.logprobs.text_offset[0] == 0
    assert len(set(found.logprobs.top_logprobs[0])) == 3


def test_chat_completion_uses_the_template(ask, folders):
    talker = peasy.load(folders[1])
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
    ]
    found = ask.chat.completions.create(
        model="talker", messages=messages, max_completion_tokens=5, temperature=0, logprobs=True, top_logprobs=2
    )
    text = offline(talker, "system: be kind\nuser: hello\nassistant: ", max_tokens=5)[0]
    assert found.choices[0].message.content == text
    assert found.choices[0].message.role == "assistant"
    assert len(found.choices[0].logprobs.content) == 5
    assert len(found.choices[0].logprobs.content[0].top_logprobs) == 2
    stream = ask.chat.completions.create(model="talker", messages=messages, max_tokens=5, temperature=0, stream=True)
    deltas = [chunk.choices[0] for chunk in stream]
    assert deltas[0].delta.role == "assistant"
    assert "".join(delta.delta.content or "" for delta in deltas) == text
    assert deltas[-1].finish_reason == "length"


def test_chat_without_template_is_refused(ask):
    with pytest.raises(openai.BadRequestError, match="/v1/completions"):
        ask.chat.completions.create(model="writer", messages=[{"role": "user", "content": "hello"}])


def test_embeddings_as_floats_and_base64(ask, folders):
    encoder = peasy.load(folders[3])
    texts = ["the pizza", "hello there"]
    truth = encoder.embed(texts)
    by_client = ask.embeddings.create(model="encoder", input=texts)  # base64 is what the client asks for by itself
    np.testing.assert_allclose([entry.embedding for entry in by_client.data], truth, atol=1e-6)
    floats = ask.embeddings.create(model="encoder", input=texts[0], encoding_format="float")
    raw = ask.embeddings.create(model="encoder", input=texts[0], encoding_format="base64").data[0].embedding
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(raw), "<f4"), np.float32(floats.data[0].embedding))
    assert floats.usage.prompt_tokens == len(encoder.encode_prompt(texts[0]))
    assert "notes" not in floats.model_extra
    cut = ask.embeddings.create(model="encoder", input=[texts[0], "the pizza " * encoder.max_text_tokens])
    assert cut.usage.prompt_tokens == floats.usage.prompt_tokens + encoder.max_text_tokens
    assert cut.notes == [
        f"1 of 2 texts were cut to the first {encoder.max_text_tokens} tokens: the model reads no more."
    ]


def test_embeddings_of_fewer_dimensions(ask, folders):
    truth = peasy.load(folders[3]).embed("the pizza").vectors[0, :5]
    found = ask.embeddings.create(model="encoder", input="the pizza", dimensions=5, encoding_format="float")
    np.testing.assert_allclose(found.data[0].embedding, truth / np.linalg.norm(truth), atol=1e-6)
    with pytest.raises(openai.BadRequestError, match="at most"):
        ask.embeddings.create(model="encoder", input="the pizza", dimensions=10_000)


def test_completion_with_an_encoder_decoder(ask, folders):
    found = ask.completions.create(model="translator", prompt="the pizza", max_tokens=5, temperature=0)
    assert found.choices[0].text == offline(peasy.load(folders[2]), "the pizza", max_tokens=5)[0]


@pytest.mark.parametrize(
    ("request_fields", "error", "message"),
    [
        ({"model": "unknown"}, openai.NotFoundError, 'No model "unknown"'),
        ({"model": "encoder"}, openai.BadRequestError, "/v1/embeddings"),
        ({"temperature": 3}, openai.BadRequestError, "temperature"),
        ({"max_tokens": -1}, openai.BadRequestError, "max_tokens"),
        ({"n": 17}, openai.BadRequestError, "n: "),
        ({"logprobs": 21}, openai.BadRequestError, "logprobs"),
        ({"stop": ["a"] * 17}, openai.BadRequestError, "stop"),
        ({"logit_bias": {"x": 1}}, openai.BadRequestError, "token ids"),
        ({"best_of": 4}, openai.BadRequestError, "best_of"),
        ({"prompt": []}, openai.BadRequestError, "prompt"),
        ({"extra_body": {"temprature": 1}}, openai.BadRequestError, "temprature"),
        ({"model": "talker", "prompt": "hello " * 200}, openai.BadRequestError, "reads at most 64"),
    ],
)
def test_error_types(ask, request_fields, error, message):
    with pytest.raises(error, match=message) as caught:
        ask.completions.create(**({"model": "writer", "prompt": "the"} | request_fields))
    assert caught.value.body["type"] in ("invalid_request_error", "not_found_error")


def test_seed_may_be_any_integer(ask):
    for seed in (0, -5, 2**63 - 1, 2**70):
        one, two = (
            ask.completions.create(model="writer", prompt="the pizza", max_tokens=4, temperature=1.0, seed=seed)
            for _ in range(2)
        )
        assert one.choices[0].text == two.choices[0].text


@pytest.mark.parametrize(("prompts", "n", "status"), [(8, 16, 200), (9, 15, 400), (64, 2, 200), (64, 3, 400)])
def test_choices_of_one_request_are_bounded(client, prompts, n, status):
    """At most 128: prompts times n."""
    body = {"model": "writer", "prompt": [[5]] * prompts, "n": n, "max_tokens": 1}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == status
    assert status == 200 or f"Prompts times n is {prompts * n}" in answer.text


@pytest.mark.parametrize(("size", "status"), [(63, 200), (64, 200), (65, 400)])
@pytest.mark.parametrize("fields", [{}, {"n": 3}, {"stream": True}, {"echo": True, "logprobs": 1}, {"max_tokens": 0}])
def test_the_context_limit_is_held(client, size, status, fields):
    answer = client.post("/v1/completions", json={"model": "talker", "prompt": [5] * size, "max_tokens": 9} | fields)
    assert answer.status_code == status
    assert status == 200 or "reads at most 64" in answer.text
