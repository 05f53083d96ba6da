"""Fixtures of the convention tests: every source file with its syntax tree, and docs/generate.py as a module."""

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Source:
    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Path below src/peasy: `formula/attention.py`."""
        return self.path.relative_to(ROOT / "src" / "peasy").as_posix()


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def sources():
    paths = sorted((ROOT / "src" / "peasy").rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return [Source(path, text, ast.parse(text)) for path, text in zip(paths, texts, strict=True)]


@pytest.fixture(scope="session")
def generate():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
