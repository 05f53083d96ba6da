"""`peasy compare`."""

import json


def test_two_model_kinds(peasy, monkeypatch, tmp_path):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    words = ("--data", "copy:3", "--steps", "2", "--preset", "tiny", "--run", "pair", "--max-samples", "4")
    few = (
        "--set",
        "data_options.num_train=200",
        "--set",
        "data_options.num_valid=20",
        "--set",
        "batch_size=4",
        "--set",
        "seq_len=16",
    )
    ran = peasy("compare", "ngram", "cnn", *words, *few, "--json")
    assert ran.code == 0, ran.err
    *events, last = map(json.loads, ran.out.splitlines())
    assert {model["kind"] for model in last["result"]["models"]} == {"ngram", "cnn"}
    assert {event["kind"] for event in events if event["event"] == "step"} == {"ngram", "cnn"}, "progress of each kind"


def test_one_kind_is_a_usage_error(peasy):
    ran = peasy("compare", "gpt", "--data", "copy")
    assert ran.code == 2
    assert "at least two kinds" in ran.err


def test_data_is_required(peasy):
    assert peasy("compare", "gpt", "rnn").code == 2
