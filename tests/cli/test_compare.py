"""`peasy compare`."""


def test_two_model_kinds(peasy, monkeypatch, tmp_path):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    words = ("--data", "copy:3", "--steps", "2", "--preset", "tiny", "--run", "pair", "--limit", "4")
    few = ("--set", "corpus.size=200", "--set", "corpus.held_out=20", "--set", "batch=4", "--set", "context=16")
    ran = peasy("compare", "ngram", "cnn", *words, *few, "--json")
    assert ran.code == 0, ran.err
    assert {model["kind"] for model in ran.json["result"]["contenders"]} == {"ngram", "cnn"}


def test_one_kind_is_a_usage_error(peasy):
    ran = peasy("compare", "gpt", "--data", "copy")
    assert ran.code == 2
    assert "at least two kinds" in ran.err


def test_data_is_required(peasy):
    assert peasy("compare", "gpt", "rnn").code == 2
