"""`peasy train`: progress on stderr, result on stdout, events as JSON lines."""

import importlib
import json
import re
import sys
import warnings

import pytest

LINES = ["the cat sat on the mat", "a bird sang in the tree", "it tasted good", "he walks to the old town"] * 20
SETTINGS = (
    "tokenizer.algorithm=characters", "model.d_model=16", "seq_len=8", "seq_len_warmup=null", "batch_size=2",
    "num_validations=1", "num_samplings=1", "num_saves=1",
)  # fmt: skip
SMALL = ["--preset", "tiny", *(word for setting in SETTINGS for word in ("--set", setting))]


@pytest.fixture
def command(peasy, tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return peasy


def test_unused_lines_are_named_in_one_line(command, tmp_path):
    rows = [json.dumps({"text": line}) for line in LINES]
    (tmp_path / "lines.jsonl").write_text("\n".join(['{"txt": 1}', *rows]) + "\n", encoding="utf-8")
    message = 'lines.jsonl:1: "text" is missing'
    with pytest.warns(UserWarning, match=f"1 line could not be used; the first: {message}") as warned:
        assert command("train", "gpt", "--data", "lines.jsonl", "--steps", "1", "--run", "fox", *SMALL).code == 0
    shown = warnings.formatwarning(warned[0].message, UserWarning, "train.py", 1)
    assert shown.startswith("! 1 line could not")
    assert "train.py" not in shown


def test_progress_and_result(command):
    shift = ("--set", "model.stack.token_shift=true")
    ran = command("train", "gpt", "--data", "lines.txt", "--steps", "2", "--run", "fox", "--seed", "4", *SMALL, *shift)
    assert ran.code == 0, ran.err
    assert "run fox · seed 4 · " in ran.err
    assert "The model uses token shift: it learns faster, but can only be exported to ONNX" in ran.err
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


def _recipe(tmp_path):
    return json.loads((tmp_path / "home" / "runs" / "fox" / "recipe.json").read_text())


def test_settings_by_flag_file_and_set(command, tmp_path):
    """The preset < --config < --lr and --batch-size < --set."""
    (tmp_path / "mine.toml").write_text("batch_size = 8\nseq_len = 4\ngrad_clip = 0.5\n[optimizer]\nlr = 0.5\n")
    small = ("--preset", "tiny", "--set", "model.d_model=16", "--set", "seq_len=8", "--set", "seq_len_warmup=null")
    flags = ("--config", "mine.toml", "--lr", "0.001", "--batch-size", "2", "--steps", "1", "--run", "fox")
    ran = command("train", "gpt", "--data", "lines.txt", *small, *flags)
    assert ran.code == 0, ran.err
    recipe = _recipe(tmp_path)
    assert (recipe["optimizer"]["lr"], recipe["batch_size"]) == (0.001, 2)
    assert (recipe["seq_len"], recipe["grad_clip"]) == (8, 0.5)


def test_dry_run_prints_the_plan_and_trains_nothing(command, tmp_path):
    words = ("gpt", "--data", "lines.txt", "--steps", "3", "--seed", "1", *SMALL)
    ran = command("train", *words, "--dry-run", "--run", "fox")
    assert ran.code == 0, ran.err
    assert "tokens per second" in ran.out
    assert "peasy train gpt --data lines.txt --preset tiny --steps 3 --set tokenizer.algorithm=characters" in ran.err
    assert not (tmp_path / "home" / "runs").exists()
    planned = command("plan", *words, "--json").json["result"]["numbers"]
    shown = command("train", *words, "--dry-run", "--json").json["result"]["numbers"]
    assert (shown["steps"], shown["parameters"]) == (planned["steps"], planned["parameters"])


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["gpt", "--steps", "1"], 2, "needs data"),
        (["gtp", "--data", "lines.txt"], 2, "gtp"),
        (["gpt", "--data", "no.txt", "--steps", "1"], 3, "no corpus or file"),
        (["gpt", "--data", "lines.txt", "--set", "optimiser.lr=1"], 4, "optimiser"),
        (["gpt", "--data", "lines.txt", "--set", "lr"], 4, "key=value"),
        (["gpt", "--run", "no-such-run", "--resume"], 2, "needs data"),
        (["gpt", "--data", "lines.txt", "--lr", "1", "--set", "optimizer.lr=2"], 2, "are the same setting"),
        (["gpt", "--data", "lines.txt", "--config", "no.toml"], 3, "no.toml"),
        (["gpt", "--run", "fox", "--resume", "--dry-run"], 2, "A dry run does not support --resume"),
        (["gpt", "--data", "lines.txt", "--num-processes", "2", "--dry-run"], 2, "does not support --num-processes"),
    ],
)
def test_errors(command, words, code, message):
    ran = command("train", *words)
    assert ran.code == code
    assert message in ran.err


def test_torchrun_passes_every_flag_of_train_on(peasy):
    """torchrun takes an abbreviation of its own flags for itself; `--run-name` is `--run`, and none."""
    parser = importlib.import_module("torch.distributed.run").get_args_parser()
    flags = set(re.findall(r"--[a-z][a-z-]+", peasy("train", "--help").out)) - {"--run"}
    assert {"--run-name", "--data", "--steps", "--config", "--num-processes"} <= flags
    words = ["train", "gpt", *(word for flag in sorted(flags) for word in (flag, "x"))]
    parsed = parser.parse_args(["--nproc-per-node", "2", "-m", "peasy", *words])
    assert parsed.training_script_args == words
    plain = ["train", "--run", "x"]
    if sys.version_info < (3, 12):  # inverse: newer parsers take the plain spelling as well
        with pytest.raises(SystemExit):
            parser.parse_args(["-m", "peasy", *plain])
    for before in (["-m", "--", "peasy"], ["-m", "peasy", "--"]):
        assert [word for word in parser.parse_args([*before, *plain]).training_script_args if word != "--"] == plain
