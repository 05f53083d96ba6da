"""Command API: the same results as in Python, rendered or as files, and no client path is opened."""

import io
import json
from dataclasses import replace

import numpy as np
import pydantic
import pytest
from fastapi.testclient import TestClient
from tests.server.tiny_server import LOCAL

import peasy
from peasy.commands.tokenize import TokenizeResult
from peasy.render.json import to_plain
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry
from peasy.server.openai_schema import ChatBody, CompletionBody, EmbeddingBody


def post(client, command, **body):
    return client.post(f"/api/{command}", json=body)


def result(client, command, **body):
    response = post(client, command, **body)
    assert response.status_code == 200, response.text
    envelope = response.json()
    assert (envelope["ok"], envelope["command"], envelope["schema"]) == (True, command, 1)
    return envelope["result"]


def without_time(data):
    return {key: value for key, value in data.items() if "second" not in key}


def same(found, truth):
    """Assert equality except for times; numbers as in JSON."""
    assert without_time(found) == json.loads(json.dumps(to_plain(without_time(truth))))


def test_worked_examples_match_python(client):
    options = {"source": "i-love-ai", "query": "AI", "causal": True}
    same(result(client, "explain", **options), peasy.explain(**options).data())
    opened = peasy.explain("easy peasy", cell=("weights", 0, 1))
    same(result(client, "explain", source="easy peasy", cell=["weights", 0, 1]), opened.data())
    same(result(client, "exercise", size="3x2", seed=7), peasy.exercise("3x2", seed=7).data())
    assert len(result(client, "examples")["examples"]) > 5


def test_own_example_as_json(client):
    own = {"title": "mine", "tokens": ["a", "b"], "x": [[1, 0], [0, 1]]}
    same(result(client, "explain", source=own), peasy.explain(own).data())


def test_check_accepts_text(client, tmp_path):
    same(result(client, "check", name="notes-i-love-ai"), peasy.check("notes-i-love-ai").data())
    text = "| | 0 |\n|-|-|\n| a | 3 |\n\n: X\n\n| | a |\n|-|-|\n| a | 8 |\n\nTable: Attention scores\n"
    file = tmp_path / "notes.md"
    file.write_text(text)
    truth = peasy.check(file).data()
    same(result(client, "check", text=text) | {"title": truth["title"]}, truth)
    assert not truth["passed"]
    assert post(client, "check").status_code == 400


def test_large_examples_are_refused(client):
    many = [str(item) for item in range(300)]
    for command, body in [
        ("explain", {"source": " ".join(many)}),
        ("explain", {"source": "a" * 5000}),
        ("explain", {"source": {"title": "t", "tokens": many, "x": [[1]] * 300}}),
        ("check", {"example": {"title": "t", "tokens": many, "x": [[1]] * 300}}),
        ("check", {"text": "X\n" + "1\n" * 300, "text_format": "csv"}),
        (
            "explain",
            {"source": {"title": "t", "given": {"x": [[1]]}, "steps": {f"y{n}": "relu(x)" for n in range(200)}}},
        ),
        (
            "explain",
            {"source": {"title": "t", "given": {"x": [[1]] * 900}, "steps": {"y": "project_transposed(x, x)"}}},
        ),
        (
            "explain",
            {
                "source": {
                    "title": "t",
                    "given": {"x": [[1]]},
                    "tokens": ["a"],
                    "vocabulary": ["a"],
                    "steps": {"y": "beam_search(x, steps=1000000000)"},
                }
            },
        ),
        (
            "explain",
            {
                "source": {
                    "title": "t",
                    "given": {"x": [[1]]},
                    "tokens": ["a"],
                    "steps": {"y": "attention(x, heads=100000000)"},
                }
            },
        ),
    ]:
        found = post(client, command, **body)
        assert found.status_code == 400
        assert any(word in found.json()["error"]["hint"] for word in ("At most", "shorter"))


def test_inference_commands_match_python(client, folders):
    writer, _, translator, encoder = map(peasy.load, folders)
    tokens = TokenizeResult(writer.tokenizer.encode("the pizza"), writer.tokenizer, "writer")
    same(result(client, "tokenize", model="writer", text="the pizza"), tokens.data())
    found = result(client, "generate", model="writer", prompt="the pizza", max_tokens=5, logprobs=2, weights="float32")
    truth = peasy.generate(writer, "the pizza", max_tokens=5, logprobs=2, weights="float32").data()
    same(found, truth | {"model": "writer"})
    found = result(client, "translate", model="translator", text="the pizza", align=True, num_beams=2)
    truth = peasy.translate(translator, "the pizza", align=True, num_beams=2)
    assert [item["text"] for item in found["translations"]] == truth.texts
    weights = found["translations"][0]["alignment"]["weights"]
    np.testing.assert_allclose(weights, truth.alignments[0].weights, atol=1e-5)
    found = result(client, "embed", model="encoder", texts=["the pizza", "hello"])
    np.testing.assert_allclose(found["vectors"], encoder.embed(["the pizza", "hello"]), atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"layers": [1], "heads": [0]}, {"view": "summary"}, {"view": "heads", "query": "pizza"}, {"view": "lens"},
        {"view": "steps", "layers": [0], "heads": [1]}, {"view": "rank"}, {"overview": "mean", "tile_size": 2},
        {"view": "effect", "edit": [{"kind": "zero", "layer": 0, "head": 1}]},
        {"edit": [{"kind": "cut", "query": "pizza", "key": "the"}]},
    ],
)  # fmt: skip
def test_look_views(client, options):
    assert result(client, "look", model="writer", text="the pizza came out", **options)


def test_look_matches_python(client, folders):
    loaded = peasy.load(folders[0])
    same(
        result(client, "look", model="writer", text="the pizza", layers=[0]),
        loaded.look("the pizza", layers=[0]).data() | {"model": "writer"},
    )
    edit = [{"kind": "zero", "layer": 0, "head": 1}]
    found = result(client, "look", model="writer", text="the pizza", view="effect", edit=edit)
    before, after = loaded.look("the pizza"), loaded.look("the pizza", edit=peasy.edit.zero(0, 1))
    same(found, before.compare(after).data() | {"model": "writer"})


def test_binary_array_payload(client, folders):
    options = {"model": "writer", "text": "the pizza came", "layers": [1], "heads": [1, 0], "queries": [1]}
    payload = post(client, "look", binary=True, **options).content
    size = int.from_bytes(payload[:4], "little")
    header, numbers = json.loads(payload[4 : 4 + size]), payload[4 + size :]
    seen = peasy.load(folders[0]).look("the pizza came", layers=[1], heads=[1, 0], queries=[1])
    assert header["tokens"] == list(seen.tokens.pieces)
    for entry, capture in zip(header["arrays"], seen.captures, strict=True):
        count = int(np.prod(entry["shape"]))
        array = np.frombuffer(numbers, "<f4", count, entry["offset"]).reshape(entry["shape"])
        np.testing.assert_array_equal(array, capture.array)
        assert (entry["layer"], entry["step"], entry["rows"]) == (capture.path.layer, capture.step, [1])
    assert post(client, "look", binary=True, view="lens", **options).status_code == 400


def test_trace_and_why(client):
    assert result(client, "trace", model="writer", text="the pizza", max_tokens=3)["steps"]
    assert result(client, "why", model="encoder", first="the pizza", second="hello there")


def test_data_experiments_runs_and_models_are_listed(client):
    assert "stories" in {item["name"] for item in result(client, "data")["corpora"]}
    assert post(client, "data", source="storys").json()["error"]["hint"] == "Did you mean stories?"
    assert result(client, "experiment")["experiments"]
    assert "runs" in result(client, "runs")
    assert {card["name"] for card in result(client, "models")["models"]} >= {"writer", "encoder"}
    assert result(client, "models", name="writer")["boxes"]


def test_results_as_html_and_files(client):
    drawn = post(client, "explain", source="i-love-ai", html=True).json()
    assert drawn["html"].startswith("<main>")
    assert "<table>" in drawn["html"]
    assert "on" + "click" not in drawn["html"]
    assert drawn["arithmetic"]
    truth = peasy.explain("i-love-ai")
    for format, text in (("md", truth.markdown()), ("tex", truth.latex()), ("html", truth.html())):
        found = post(client, "explain", source="i-love-ai", format=format)
        assert found.text == text
        assert found.headers["content-disposition"] == f'attachment; filename="explain.{format}"'
    arrays = np.load(io.BytesIO(post(client, "explain", source="i-love-ai", format="npz").content))
    assert arrays.files
    assert post(client, "explain", source="i-love-ai", format="png").content.startswith(b"\x89PNG")


HOSTILE = ["/etc/passwd", "../../etc/passwd", "..", "/", "~", "file:///etc/passwd", "\0", "C:\\x", ".", "%2e%2e/"]


@pytest.mark.parametrize("path", HOSTILE)
def test_client_paths_are_never_opened(client, path, monkeypatch):
    opened = []
    import sys

    watched = [False]

    def record_open(event, given):
        if watched[0] and event == "open" and isinstance(given[0], str) and ("passwd" in given[0] or given[0] == path):
            opened.append(given[0])

    sys.addaudithook(record_open)
    watched[0] = True
    for command, body in [
        ("tokenize", {"model": path, "text": "a"}),
        ("generate", {"model": path, "prompt": "a"}),
        ("embed", {"model": path, "texts": "a"}),
        ("translate", {"model": path, "text": "a"}),
        ("look", {"model": path, "text": "a b"}),
        ("models", {"name": path}),
        ("runs", {"name": path}),
        ("data", {"source": path}),
        ("experiment", {"name": path}),
        ("check", {"name": path}),
        ("check", {"text": path, "text_format": "toml"}),
        ("explain", {"source": path}),
    ]:
        found = post(client, command, **body)
        assert found.status_code in (400, 404) or command == "explain", (command, found.text)
        assert "root:" not in found.text
    for model in ("completions", "chat/completions", "embeddings"):
        assert client.post(f"/v1/{model}", json={"model": path}).status_code in (400, 404)
    watched[0] = False
    assert not opened


def test_unknown_fields_and_malformed_bodies_are_refused(client):
    found = post(client, "explain", source="i-love-ai", decimal=3)
    assert found.status_code == 400
    assert found.json() == {
        "ok": False,
        "error": {
            "code": "malformed", "message": "decimal: Extra inputs are not permitted.",
            "hint": "Did you mean decimals?",
        },
        "exit": 4,
    }  # fmt: skip
    found = client.post("/v1/completions", json={"model": "writer", "prompt": "a", "max_new_tokens": 3}).json()
    assert found["error"]["message"].endswith("Extra inputs are not permitted. Did you mean max_tokens?")
    found = client.post("/v1/completions", json={"model": "writer", "prompt": "a", "xyz": 3}).json()
    assert found["error"]["message"] == "xyz: Extra inputs are not permitted."
    assert post(client, "generate", model="writer", prompt="a", max_tokens="5").status_code == 400
    for torn in (b"{" * 100_000, b"[" * 100_000, b'{"source": "a', b"\xff", b"1e999", b'"\\ud800"', b"null", b""):
        found = client.post("/api/explain", content=torn, headers={"content-type": "application/json"})
        assert found.status_code == 400
        assert found.json()["error"]["message"]


def nested(levels):
    return json.loads("[" * levels + "]" * levels)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("prompt", nested(200), "nested more than 32"), ("metadata", {"a": nested(200)}, "nested more than 32"),
        ("metadata", {str(i): 1 for i in range(5000)}, "more than 4,096 members"),
        ("logit_bias", {str(i): "x" for i in range(5000)}, "more than 4,096 members"),
        *((path, nested(200), "nested more than 32") for path in ("text", "model", "edit", "tables", "query")),
    ],
)  # fmt: skip
def test_huge_structures_are_refused_before_they_are_read(client, field, value, says):
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/api/look", "/api/explain"):
        answer = client.post(path, json={"model": "writer", field: value})
        assert answer.status_code == 400
        assert says in answer.text


def test_the_first_wrong_item_of_a_list_ends_the_reading():
    """A megabyte of wrong items took five seconds, in which the server answered nobody."""
    bodies = [
        (CompletionBody, {"prompt": [None] * 999}), (CompletionBody, {"prompt": [[None] * 99] * 60}),
        (ChatBody, {"messages": [{"role": "x"}] * 999}),
        (ChatBody, {"messages": [{"role": "user", "content": [{"type": "x"}] * 99}]}),
        (EmbeddingBody, {"input": [None] * 999}),
    ]  # fmt: skip
    for body, fields in bodies:
        with pytest.raises(pydantic.ValidationError) as refused:
            body.model_validate({"model": "writer"} | fields)
        assert refused.value.error_count() < 10


def test_beam_search_refuses_sampling_parameters(client):
    """And a seed may be as large as the schema allows, however a client rounds it."""
    given = {"model": "writer", "text": "the pizza", "max_tokens": 2}
    refused = client.post("/api/trace", json=given | {"num_beams": 2, "top_p": 0.5})
    assert refused.status_code == 400
    assert "does not sample: top_p" in refused.json()["error"]["message"]
    assert client.post("/api/trace", json=given | {"num_beams": 2}).status_code == 200
    seed = client.get("/openapi.json").json()["components"]["schemas"]["TraceBody"]["properties"]["seed"]
    assert seed["exclusiveMaximum"] == 2**53, "a number that every client can write"


def test_every_error_has_a_status_of_its_own():
    """Only bugs are 500: a run that is locked or an engine that is full is not."""
    from peasy.errors import PeasyError
    from peasy.server.responses import error_response
    from peasy.training import distributed, learner, run_folder  # noqa: F401 (their errors)

    def subclasses(kind):
        return {kind, *(one for each in kind.__subclasses__() for one in subclasses(each))}

    bugs = {"error", "internal-error", "refused"}
    codes = {
        kind.code: kind
        for kind in subclasses(PeasyError)
        if kind.code not in bugs and kind.__module__.startswith("peasy.")
    }
    assert len(codes) > 10
    statuses = {}
    for code in codes:
        error = PeasyError("x")
        error.code = code
        statuses[code] = error_response(error).status_code
    assert {code: status for code, status in statuses.items() if status == 500} == {}
    assert statuses["busy"] == 409
    assert statuses["overloaded"] == 429


def test_tokenize_and_detokenize(client, folders):
    import peasy

    tokenizer = peasy.load(folders[0]).require_tokenizer()
    answer = client.post("/tokenize", json={"model": folders[0].name, "prompt": "the pizza"}).json()
    assert answer["tokens"] == tokenizer.encode_ids("the pizza")
    assert (answer["count"], answer["token_strs"]) == (len(answer["tokens"]), None)
    back = client.post("/detokenize", json={"model": folders[0].name, "tokens": answer["tokens"]}).json()
    assert back["prompt"] == tokenizer.decode(answer["tokens"], keep_special_tokens=True)
    body = {"model": folders[0].name, "prompt": "the pizza", "add_special_tokens": False, "return_token_strs": True}
    answer = client.post("/tokenize", json=body).json()
    assert answer["tokens"] == tokenizer.encode_ids("the pizza", add_special_tokens=False)
    assert answer["token_strs"] == [tokenizer.token(id) for id in answer["tokens"]]
    for unknown in (-1, 10**6):
        assert client.post("/detokenize", json={"model": folders[0].name, "tokens": [unknown]}).status_code == 400


def test_tokenize_messages_and_keep_special_tokens(folders):
    loaded = peasy.load(folders[1])
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %} hello{% endif %}"
    talker = replace(loaded, tokenizer=loaded.require_tokenizer().with_chat_template(template))
    messages = {"messages": [{"role": "user", "content": "the pizza"}]}
    eos = talker.tokenizer.special_tokens.eos
    with TestClient(build_app(ModelRegistry([talker]), pages=False), base_url=LOCAL) as client:  # it needs no name
        opened = client.post("/tokenize", json=messages).json()["tokens"]
        closed = client.post("/tokenize", json=messages | {"add_generation_prompt": False}).json()["tokens"]
        plain = client.post("/tokenize", json={"prompt": "the pizza hello"}).json()["tokens"]
        text = client.post("/detokenize", json={"tokens": [*closed, eos]}).json()["prompt"]
    assert opened == talker.encode_chat(messages["messages"]) == plain
    assert closed == talker.encode_chat(messages["messages"], add_generation_prompt=False) != opened
    assert text == "the pizza" + talker.tokenizer.token(eos)


def test_token_routes_answer_errors_as_openai_does(client):
    several = client.post("/tokenize", json={"prompt": "the pizza"})
    assert several.status_code == 400
    assert several.json()["error"]["type"] == "invalid_request_error"
    assert "talker" in several.json()["error"]["message"]
    for body in ({}, {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}):
        found = client.post("/tokenize", json={"model": "writer"} | body).json()
        assert "one of them" in found["error"]["message"]
