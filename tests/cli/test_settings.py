"""Precedence of config sources: defaults < user's file < ./peasy.toml < environment < flags."""

import os
from pathlib import Path

import pytest

from peasy.cli.command import CommandOutput, DocumentResult, Flags
from peasy.views.document import Document


@pytest.fixture
def greet(register, peasy):
    def greet(*, loud: int = 1, flags: Flags = Flags()) -> CommandOutput:
        return CommandOutput(
            DocumentResult(Document("x", ()), {"loud": loud, "seed": flags.seed, "device": flags.device})
        )

    register(greet)
    return lambda *words: peasy("greet", "--json", *words).json


@pytest.fixture
def user_file(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    file = tmp_path / "home" / "peasy" / "config.toml"
    file.parent.mkdir(parents=True)
    return file


def test_precedence(greet, user_file, monkeypatch):
    assert greet()["result"]["seed"] is None
    user_file.write_text("seed = 1\n")
    assert greet()["result"]["seed"] == 1
    Path("peasy.toml").write_text("seed = 2\n")
    assert greet()["result"]["seed"] == 2
    monkeypatch.setenv("PEASY_SEED", "3")
    assert greet()["result"]["seed"] == 3
    assert greet("--seed", "4")["result"]["seed"] == 4


def test_table_of_a_command(greet, peasy):
    Path("peasy.toml").write_text('device = "cpu"\n[greet]\nloud = 7\nseed = 9\n[version]\nquiet = true\n')
    assert greet()["result"] == {"loud": 7, "seed": 9, "device": "cpu"}


def test_tables_of_subcommands(peasy, tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    Path("peasy.toml").write_text("[runs]\njson = true\n[runs.list]\nquiet = true\n[models.retrain]\nrun = 'x'\n")
    assert peasy("runs").json["command"] == "runs"
    assert peasy("runs", "list").json["command"] == "runs list"
    assert peasy("runs", "show", "fox").json["exit"] == 3, "the table of a command holds for its subcommands"
    assert peasy("models").out.startswith("Models")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[runs]\nyse = true", "runs.yse: unknown key. Did you mean yes?"),
        ("[runs.lst]\nquiet = true", "runs.lst: unknown key. Did you mean list?"),
        ("[models]\nrun = 'x'", "models.run: unknown key."),
        ("[runs.show]\nrun = 'x'", "runs.show.run: unknown key."),
    ],
)
def test_unknown_key_of_a_subcommand(peasy, text, message):
    Path("peasy.toml").write_text(text)
    output = peasy("runs", "show", "fox", "--json").json
    assert output["exit"] == 4
    assert message in f"{output['error']['message']} {output['error']['hint']}"


def test_lists_in_files(peasy):
    Path("peasy.toml").write_text('[look]\nablate = ["1.0", "0"]\n')
    assert "layer 1, head 0 set to zero" in peasy("look", "stories", "The pizza").out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sed = 1", "Did you mean seed?"),
        ("[gret]\nloud = 1", "Did you mean greet?"),
        ("[greet]\nlod = 1", "Did you mean loud?"),
        ("seed = ", "not valid TOML"),
        ("loud = 3", "loud: unknown key"),
    ],
)
def test_unknown_key_is_rejected(greet, text, message):
    Path("peasy.toml").write_text(text)
    output = greet()
    assert output["exit"] == 4
    assert message in f"{output['error']['message']} {output['error']['hint']}"
    assert "peasy.toml" in output["error"]["message"]


def test_invalid_value_names_its_source(greet):
    Path("peasy.toml").write_text('seed = "five"\n')
    output = greet()
    assert output["exit"] == 2
    assert "peasy.toml" in output["error"]["message"]


def test_boolean_flags_in_files_and_environment(peasy, monkeypatch):
    Path("peasy.toml").write_text("json = true\n")
    assert peasy("version").json["ok"]
    os.unlink("peasy.toml")
    monkeypatch.setenv("PEASY_JSON", "1")
    assert peasy("version").json["ok"]
    assert peasy("verison").json["exit"] == 2
