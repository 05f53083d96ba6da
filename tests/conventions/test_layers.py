"""The import layers hold, and a line that violates them is caught."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from peasy.checkpoint.huggingface import FAMILIES

LINT = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    return subprocess.run(LINT, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def copy(tmp_path_factory, root):
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(root / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", folder)
    for path in (folder / "src").rglob("*"):  # a read-only project stays writable as a copy
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def test_import_layers_hold(root):
    process = lint(root)
    assert process.returncode == 0, process.stdout


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("formula/axes.py", "import peasy.worked", "Layers"),
        ("tokenization/__init__.py", "import peasy.formula", "Layers"),
        ("formula/axes.py", "import torch", "no torch"),
        ("worked/__init__.py", "import safetensors", "core install"),
        ("models/__init__.py", "import transformers", "reference of the tests"),
        ("views/__init__.py", "import rich", "Terminal libraries"),
        ("commands/__init__.py", "import fastapi", "Web libraries"),
        ("elsewhere.py", '"""A module without a layer."""', "Layers"),
    ],
)
def test_a_violation_is_caught(file, line, contract, copy):
    target = copy / "src" / "peasy" / file
    before = target.read_bytes() if target.exists() else None
    target.write_text((before or b"").decode() + f"\n{line}\n", encoding="utf-8")
    try:
        process = lint(copy)
    finally:
        target.write_bytes(before) if before is not None else target.unlink()
    output = " ".join(process.stdout.split())
    assert process.returncode != 0
    assert contract in output
    assert "BROKEN" in output or "exhaustive" in output.lower() or "layer" in output.lower()


def _strings(tree):
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_families_are_data(sources):
    """No layer asks for the name of a family, and no file of families has more than 250 lines."""
    layers = [source for source in sources if source.name.startswith("nn/")]
    families = [source for source in sources if source.name.startswith("checkpoint/huggingface/")]
    assert len(layers) > 10
    assert not {name for source in layers for name in _strings(source.tree)} & FAMILIES.keys()
    assert _strings(ast.parse("if family == 'gemma2': pass")) & FAMILIES.keys()  # inverse
    assert {"llama.py", "bert.py"} <= {source.path.name for source in families}
    assert max(len(source.text.splitlines()) for source in families) <= 250
