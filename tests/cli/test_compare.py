"""`peasy compare` from argv to a table with curves."""


def test_two_kinds(peasy, monkeypatch, tmp_path):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    words = ("--data", "copy:3", "--steps", "2", "--preset", "tiny", "--run", "pair", "--limit", "4")
    few = ("--set", "corpus.size=200", "--set", "corpus.held_out=20", "--set", "batch=4", "--set", "context=16")
    ran = peasy("compare", "ngram", "cnn", *words, *few, "--json")
    assert ran.code == 0, ran.err
    assert {each["kind"] for each in ran.json["result"]["contenders"]} == {"ngram", "cnn"}


def test_one_kind_is_not_enough(peasy):
    ran = peasy("compare", "gpt", "--data", "copy")
    assert ran.code == 2
    assert "compared" in ran.err


def test_data_is_needed(peasy):
    assert peasy("compare", "gpt", "rnn").code == 2
