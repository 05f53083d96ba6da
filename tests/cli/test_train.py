"""`peasy train`: progress on stderr, result on stdout, events as JSON lines."""

import json

import pytest

LINES = ["the cat sat on the mat", "a bird sang in the tree", "it tasted good", "he walks to the old town"] * 20
SMALL = [
    "--preset", "tiny", "--set", "tokenizer.by=characters", "--set", "model.d_model=16", "--set", "context=8",
    "--set", "short=null", "--set", "batch=2", "--set", "validate=1", "--set", "sample=1", "--set", "save=1",
]  # fmt: skip


@pytest.fixture
def command(peasy, tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return peasy


def test_progress_and_result(command):
    ran = command("train", "gpt", "--data", "lines.txt", "--steps", "2", "--run", "fox", "--seed", "4", *SMALL)
    assert ran.code == 0, ran.err
    assert "run fox · seed 4 · " in ran.err
    assert "step 2: validation loss " in ran.err
    assert "finished after 2 steps" in ran.out
    assert "peasy runs show fox" in ran.err


def test_json_lines(command):
    ran = command("train", "gpt", "--data", "lines.txt", "--steps", "2", "--run", "fox", "--json", *SMALL)
    *events, last = map(json.loads, ran.out.splitlines())
    assert [event["event"] for event in events] == [
        "started", "step", "step", "validated", "sampled", "saved", "finished"
    ]  # fmt: skip
    assert last["ok"]
    assert last["result"]["sha256"] == events[-1]["sha256"]


def test_finished_run_can_be_extended(command):
    command("train", "gpt", "--data", "lines.txt", "--steps", "2", "--run", "fox", *SMALL)
    ran = command("train", "gpt", "--run", "fox", "--resume", "--steps", "3")
    assert ran.code == 0, ran.err
    assert "resumed after step 2" in ran.err
    assert "finished after 3 steps" in ran.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["gpt", "--steps", "1"], 2, "needs data"),
        (["gtp", "--data", "lines.txt"], 2, "gtp"),
        (["gpt", "--data", "no.txt", "--steps", "1"], 3, "no corpus or file"),
        (["gpt", "--data", "lines.txt", "--set", "optimiser.lr=1"], 4, "recipe.optimiser"),
        (["gpt", "--data", "lines.txt", "--set", "lr"], 4, "key=value"),
        (["gpt", "--run", "no-such-run", "--resume"], 2, "needs data"),
    ],
)
def test_errors(command, words, code, message):
    ran = command("train", *words)
    assert ran.code == code
    assert message in ran.err
