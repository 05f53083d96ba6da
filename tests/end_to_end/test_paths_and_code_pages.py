"""Paths with spaces and non-ASCII letters, and terminals with a code page of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = "Prüfung für 模型 (1)"


@pytest.fixture
def folder(peasy, tmp_path, monkeypatch):
    """Current folder with spaces, brackets and letters of three scripts; runs are kept in it too."""
    folder = tmp_path / _FOLDER
    folder.mkdir()
    monkeypatch.setenv("PEASY_HOME", str(folder / "zu Hause"))
    monkeypatch.chdir(folder)
    return folder


def test_a_model_is_trained_exported_and_used_in_a_folder_with_any_name(peasy, folder):
    (folder / "mein Text ß.txt").write_text("the cat sat on the mat. " * 200, encoding="utf-8")
    small = ("--preset", "tiny", "--steps", "2")
    trained = peasy("train", "gpt", "--data", "mein Text ß.txt", "--run", "./Läufe/erster", *small)
    assert trained.code == 0, trained.err
    exported = peasy("export", "./Läufe/erster", "für andere ü")
    assert exported.code == 0, exported.err
    arguments = ("the cat", "--max-tokens", "4", "--temperature", "0")
    texts = [peasy("generate", str(path), *arguments) for path in ("./Läufe/erster", folder / "für andere ü")]
    assert [result.code for result in texts] == [0, 0], [result.err for result in texts]
    assert texts[0].out == texts[1].out


def test_notes_and_code_are_judged_in_a_folder_with_any_name(peasy, folder):
    code = Path(__file__).parent / "attention.py"
    shutil.copy(code, folder / "mein Kopf ü.py")
    proved = peasy("prove", "mein Kopf ü.py:attention")
    assert proved.code == 0, proved.out + proved.err
    assert peasy("explain", "i-love-ai", "--out", "Tafel ü 1.md").code == 0
    assert peasy("check", "Tafel ü 1.md").code == 0
    for ending in ("html", "svg", "json", "csv"):
        assert peasy("explain", "i-love-ai", "--out", f"Tafel ü 1.{ending}").code == 0
        assert list(folder.glob(f"Tafel*{ending}"))


@pytest.mark.parametrize("code_page", ["cp437", "cp1252", "cp932"])
def test_terminals_with_a_code_page_get_question_marks_not_errors(code_page, tmp_path):
    environment = os.environ | {"PYTHONUTF8": "0", "PYTHONIOENCODING": code_page, "PEASY_HOME": str(tmp_path)}
    words = [sys.executable, "-m", "peasy", "explain", "Straße 日本", "--query", "日本"]
    done = subprocess.run(words, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Straße".encode(code_page, "replace") in done.stdout
    assert b"Traceback" not in done.stderr
