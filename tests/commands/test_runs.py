"""`runs`: list, show, diff and delete, from files in run folders only."""

import json

import pytest

from peasy.commands.runs import diff_runs, open_run, remove_run, runs
from peasy.errors import NotFound, UsageError
from peasy.training.run_folder import RunLocked, run_lock


def write(folder, *, lr: float = 0.1, finished: bool = True) -> None:
    (folder / "checkpoints").mkdir(parents=True)
    recipe = {"model_kind": "gpt", "preset": "tiny", "data": "stories", "seed": 3, "steps": 4, "optimizer": {"lr": lr}}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    lines = [{"event": "started", "step": 0, "num_parameters": 10}]
    for step in range(1, 5 if finished else 3):
        lines.append(
            {"event": "step", "step": step, "loss": 4.0 - step, "tokens": 8 * step, "elapsed_seconds": step / 2}
        )
    lines.append({"event": "validated", "step": 2, "loss": 2.5})
    if finished:
        lines.append({"event": "finished", "step": 4, "sha256": "ab" * 32, "elapsed_seconds": 2.5})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"event": "st')
    sampled = {"event": "sampled", "step": 2, "prompts": ["The"], "texts": [" cat"], "ids": [[1]]}
    (folder / "samples.jsonl").write_text(json.dumps(sampled) + "\n")


@pytest.fixture
def run_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "runs" / "fox")
    write(tmp_path / "runs" / "owl", lr=0.2, finished=False)
    (tmp_path / "runs" / "imported").mkdir()
    return tmp_path / "runs"


def test_list_has_training_runs_only(run_folders):
    result = runs()
    assert [run.name for run in result] == [run.name for run in result.runs] == ["fox", "owl"]
    assert result["fox"].facts() == result.runs[0].facts()
    with pytest.raises(NotFound):
        result["cat"]
    states = [run["state"] for run in result.data()["runs"]]
    assert states == ["finished after 4 steps", "stopped at step 2 of 4; --resume continues from the beginning"]
    assert result.document().title == "Runs"
    (run_folders / "owl" / "checkpoints" / "step-2").mkdir()
    assert runs().data()["runs"][1]["state"].endswith("--resume continues after step 2")


def test_empty_list_says_how_to_start(tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    assert "peasy train" in runs().document().parts[0].text


def test_show_run(run_folders):
    facts = open_run("fox").facts()
    assert (facts.step, facts.loss, facts.validation_loss, facts.elapsed) == (4, 0.0, 2.5, 2.5)
    assert facts.train_losses == ((1, 3.0), (2, 2.0), (3, 1.0), (4, 0.0))
    assert facts.samples == (("The", " cat"),)
    assert open_run(run_folders / "fox").data()["recipe"]["optimizer"] == {"lr": 0.1}


def test_diff_lists_settings(run_folders):
    result = diff_runs("fox", "owl").data()
    assert result["settings"] == {"optimizer.lr": ["0.1", "0.2"]}
    assert diff_runs("fox", "fox").document().parts[0].text == "No differences."


def test_delete_asks_first_and_refuses_a_running_one(run_folders):
    with pytest.raises(UsageError, match="not confirmed"):
        remove_run("fox")
    with run_lock(run_folders / "fox"), pytest.raises(RunLocked):
        remove_run("fox", yes=True)
    assert (run_folders / "fox").is_dir()
    remove_run("fox", confirm=lambda question: "fox" in question)
    assert [run.name for run in runs().runs] == ["owl"]


def test_unknown_runs(run_folders):
    with pytest.raises(NotFound, match='No run "fix"') as error:
        open_run("fix")
    assert "Did you mean fox?" in error.value.hint
    with pytest.raises(NotFound, match="not a training run"):
        open_run("imported")


def test_damaged_recipe_does_not_hide_other_runs(run_folders):
    (run_folders / "owl" / "recipe.json").write_text("{")
    assert [run.name for run in runs().runs] == ["fox"]
