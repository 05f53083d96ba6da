"""`peasy runs`."""

import json

import pytest


@pytest.fixture
def command(peasy, tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    for name, seed in (("fox", 1), ("owl", 2)):
        folder = tmp_path / "runs" / name
        (folder / "checkpoints").mkdir(parents=True)
        recipe = {"trains": "gpt", "preset": "tiny", "data": "stories", "seed": seed, "steps": 9}
        (folder / "recipe.json").write_text(json.dumps(recipe))
    return peasy


def test_list_show_diff(command):
    assert "fox" in command("runs").out
    shown = command("runs", "show", "fox")
    assert "stopped at step 0 of 9" in shown.out
    assert "peasy train gpt --run fox --resume" in shown.err
    assert command("runs", "diff", "fox", "owl", "--json").json["result"]["settings"] == {"seed": ["1", "2"]}


def test_rm_needs_confirmation(command):
    assert command("runs", "rm", "fox").code == 2
    assert command("runs", "rm", "fox", "--yes").code == 0
    assert "fox" not in command("runs").out


@pytest.mark.parametrize(
    ("words", "code"), [(["show"], 2), (["diff", "fox"], 2), (["show", "fix"], 3), (["burn", "fox"], 2)]
)
def test_errors(command, words, code):
    assert command("runs", *words).code == code
