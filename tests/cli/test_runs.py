"""`peasy runs` and its subcommands."""

import json

import pytest


@pytest.fixture
def command(peasy, tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    for name, seed in (("fox", 1), ("owl", 2)):
        folder = tmp_path / "runs" / name
        (folder / "checkpoints").mkdir(parents=True)
        recipe = {"model_kind": "gpt", "preset": "tiny", "data": "stories", "seed": seed, "steps": 9}
        (folder / "recipe.json").write_text(json.dumps(recipe))
    return peasy


def test_list_show_diff(command):
    assert "fox" in command("runs").out
    assert command("runs").out == command("runs", "list").out
    shown = command("runs", "show", "fox")
    assert "stopped at step 0 of 9" in shown.out
    assert "peasy train gpt --run fox --resume" in shown.err
    diff = command("runs", "diff", "fox", "owl", "--json").json
    assert diff["command"] == "runs diff"
    assert diff["result"]["settings"] == {"seed": ["1", "2"]}


def test_rm_needs_confirmation(command):
    assert command("runs", "rm", "fox").code == 2
    assert command("runs", "rm", "fox", "--yes").code == 0
    assert "fox" not in command("runs").out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["show"], 2, "runs show needs NAME."),
        (["diff", "fox"], 2, "runs diff needs RIGHT."),
        (["diff", "fox", "owl", "cat"], 2, 'runs diff: unexpected argument "cat"'),
        (["show", "fix"], 3, "Did you mean fox?"),
        (["fox"], 2, 'runs has no subcommand "fox"'),
        (["burn", "fox"], 2, "list, show, diff, rm"),
        (["shwo", "fox"], 2, "Did you mean show?"),
        (["delete", "fox"], 2, "Did you mean rm?"),
        (["ls"], 2, "Did you mean list?"),
        (
            ["show", "fox", "--jsn"],
            2,
            "runs show has no flag --jsn.\n  Did you mean --json?\n  See: peasy runs show --help",
        ),
    ],
)
def test_errors(command, words, code, message):
    ran = command("runs", *words)
    assert ran.code == code
    assert message in ran.err
