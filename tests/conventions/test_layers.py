"""The floors hold, and a line that breaks them is caught."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LINT = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.environ | {"PYTHONPATH": str(folder / "src")}
    return subprocess.run(LINT, cwd=folder, env=path, capture_output=True, text=True)


@pytest.fixture(scope="module")
def copy(tmp_path_factory, root):
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(root / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", folder)
    return folder


def test_the_floors_hold(root):
    done = lint(root)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("formula/axes.py", "import peasy.worked", "Floors"),
        ("tokenization/__init__.py", "import peasy.formula", "Floors"),
        ("formula/axes.py", "import torch", "no torch"),
        ("models/__init__.py", "import transformers", "the other road"),
        ("views/__init__.py", "import rich", "Terminal libraries"),
        ("commands/__init__.py", "import fastapi", "Web libraries"),
        ("elsewhere.py", '"""A room that has no floor."""', "Floors"),
    ],
)
def test_a_line_that_breaks_them_is_caught(file, line, contract, copy):
    target = copy / "src" / "peasy" / file
    before = target.read_bytes() if target.exists() else None
    target.write_text((before or b"").decode() + f"\n{line}\n", encoding="utf-8")
    try:
        done = lint(copy)
    finally:
        target.write_bytes(before) if before is not None else target.unlink()
    said = " ".join(done.stdout.split())
    assert done.returncode != 0
    assert contract in said
    assert "BROKEN" in said or "exhaustive" in said.lower() or "layer" in said.lower()
