"""`peasy tokenize`."""

import json

import pytest

from peasy.tokenization import train_tokenizer


@pytest.fixture
def file(tmp_path):
    train_tokenizer(["the cat sat on the mat"] * 9, "bpe", 280).save(tmp_path / "tokenizer.json")
    return tmp_path / "tokenizer.json"


def test_token_table(peasy, file):
    ran = peasy("tokenize", file, "the mat")
    assert ran.code == 0
    assert "the" in ran.out
    assert "·mat" in ran.out


def test_stdin_and_json(peasy, file):
    result = peasy("tokenize", file.parent, "-", "--json", stdin="the mat\n").json["result"]
    assert result["text"] == "the mat"
    assert [word["text"] for word in result["words"]] == ["the", "mat"]


def test_saved_to_a_file(peasy, file, tmp_path):
    assert peasy("tokenize", file, "the mat", "--out", "tokens.csv").code == 0
    assert "·mat" in (tmp_path / "tokens.csv").read_text()


@pytest.mark.parametrize(
    ("model", "code", "message"),
    [
        ("./nope", 3, "does not exist"),
        ("no-such", 3, 'No model "no-such"'),
        ("no/such", 7, "offline"),
        ("empty.json", 4, "is empty"),
        ("broken.json", 4, "not valid JSON"),
        ("hostile.json", 4, "a repeat inside a repeat"),
    ],
)
def test_errors(peasy, file, tmp_path, model, code, message):
    (tmp_path / "empty.json").touch()
    (tmp_path / "broken.json").write_text("{")
    split = {"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": False}
    (tmp_path / "hostile.json").write_text(json.dumps(json.loads(file.read_text()) | {"pre_tokenizer": split}))
    ran = peasy("tokenize", model, "the mat", "--offline")
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert "Traceback" not in ran.err
    failure = peasy("tokenize", model, "the mat", "--offline", "--json").json
    assert (failure["ok"], failure["exit"]) == (False, code)
