"""Defaults < the user's file < ./peasy.toml < environment < flags."""

import os
from pathlib import Path

import pytest

from peasy.cli.door import Answer, Flags, Page
from peasy.views.document import Document


@pytest.fixture
def greet(verb, peasy):
    def greet(*, loud: int = 1, flags: Flags = Flags()) -> Answer:
        return Answer(Page(Document("x", ()), {"loud": loud, "seed": flags.seed, "device": flags.device}))

    verb(greet)
    return lambda *words: peasy("greet", "--json", *words).json


@pytest.fixture
def user_file(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    file = tmp_path / "home" / "peasy" / "config.toml"
    file.parent.mkdir(parents=True)
    return file


def test_each_source_wins_over_the_one_before(greet, user_file, monkeypatch):
    assert greet()["result"]["seed"] is None
    user_file.write_text("seed = 1\n")
    assert greet()["result"]["seed"] == 1
    Path("peasy.toml").write_text("seed = 2\n")
    assert greet()["result"]["seed"] == 2
    monkeypatch.setenv("PEASY_SEED", "3")
    assert greet()["result"]["seed"] == 3
    assert greet("--seed", "4")["result"]["seed"] == 4


def test_a_table_speaks_to_one_verb(greet, peasy):
    Path("peasy.toml").write_text('device = "cpu"\n[greet]\nloud = 7\nseed = 9\n[version]\nquiet = true\n')
    assert greet()["result"] == {"loud": 7, "seed": 9, "device": "cpu"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sed = 1", "Did you mean seed?"),
        ("[gret]\nloud = 1", "Did you mean greet?"),
        ("[greet]\nlod = 1", "Did you mean loud?"),
        ("seed = ", "not valid TOML"),
        ("loud = 3", "loud: there is no such key"),
    ],
)
def test_a_misspelt_key_is_refused_by_name(greet, text, said):
    Path("peasy.toml").write_text(text)
    told = greet()
    assert told["exit"] == 4
    assert said in f"{told['error']['message']} {told['error']['hint']}"
    assert "peasy.toml" in told["error"]["message"]


def test_a_wrong_value_names_its_source(greet):
    Path("peasy.toml").write_text('seed = "five"\n')
    told = greet()
    assert told["exit"] == 2
    assert "peasy.toml" in told["error"]["message"]


def test_switches_in_files_and_environment(peasy, monkeypatch):
    Path("peasy.toml").write_text("json = true\n")
    assert peasy("version").json["ok"]
    os.unlink("peasy.toml")
    monkeypatch.setenv("PEASY_JSON", "1")
    assert peasy("version").json["ok"]
    assert peasy("verison").json["exit"] == 2
