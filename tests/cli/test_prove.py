"""`peasy prove`."""

from pathlib import Path
from xml.etree import ElementTree

WRONG = """
import numpy as np

def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1]
    return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True) @ v
"""


def test_model_is_verified(peasy, model_folder, tmp_path):
    (tmp_path / "prompts.txt").write_text("I love AI\n\nI love pizza\n", encoding="utf-8")
    ran = peasy(
        "prove", model_folder, "I love pizza", "--prompt", f"@{tmp_path / 'prompts.txt'}", "--prompt", "AI", "--json"
    )
    assert ran.code == 0
    output = ran.json
    assert (output["ok"], output["result"]["passed"], output["result"]["num_sequences"]) == (True, True, 4)
    shown = peasy("prove", model_folder, "I love pizza")
    assert "✓ holds" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_mistake_in_a_file_is_named(peasy, tmp_path):
    (tmp_path / "mine.py").write_text(WRONG, encoding="utf-8")
    ran = peasy("prove", f"{tmp_path}/mine.py:attention")
    assert ran.code == 8
    assert "scale by d_k" in ran.out
    assert "in a separate process" in ran.err
    assert "calls in its project's tests and READMEs are tried" in ran.err
    assert "runs with your rights" in ran.err
    assert "your line 5" in ran.out


def test_failed_check_is_no_error(peasy, tmp_path):
    (tmp_path / "mine.py").write_text(WRONG, encoding="utf-8")
    ran = peasy("prove", f"{tmp_path}/mine.py:attention", "--call", "attention(q, k, v)", "--json")
    assert (ran.code, ran.json["ok"], ran.json["result"]["passed"]) == (8, True, False)
    assert ran.json["result"]["mistakes"] == ["scale by d_k"]
    assert "READMEs" not in ran.err, "the call is given"


def test_folder_gives_a_junit_report(peasy, tmp_path):
    (tmp_path / "mine.py").write_text(WRONG, encoding="utf-8")
    ran = peasy("prove", tmp_path, "--out", tmp_path / "report.xml", "--json")
    assert (ran.code, [Path(each).name for each in ran.json["files"]]) == (8, ["report.xml"])
    (failed,) = ElementTree.parse(tmp_path / "report.xml").getroot().iter("failure")
    assert "scale by d_k" in failed.get("message", "")


def test_missing_model_and_file(peasy, tmp_path):
    assert peasy("prove", "no-such-model", "--offline").code in (3, 7)
    assert peasy("prove", f"{tmp_path}/none.py:attention").code == 3
    assert peasy("prove", "model", "--max-tokens", "0").code == 2


def test_code_that_is_not_compared_has_its_own_exit_code(peasy, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def attention(q, k, v):\n    return q @ (k.swapaxes(-1, -2) @ v)\n", encoding="utf-8"
    )
    ran = peasy("prove", f"{tmp_path}/mine.py:attention", "--json")
    assert (ran.code, ran.json["ok"], ran.json["result"]["passed"]) == (9, True, None)
    assert ran.json["result"]["unknown"]
