"""peasy installed without extras: worked examples, checks and NumPy code work, the rest says what to install."""

import re
import subprocess
import sys

import pytest

from peasy.extras import EXTRAS

WITHOUT_EXTRAS = f"""
import sys

class BlockExtras:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(EXTRAS)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, BlockExtras())
"""
RUN = WITHOUT_EXTRAS + "from peasy.cli.app import run; sys.exit(run(sys.argv[1:]))"
ATTENTION = """
import numpy as np

def attention(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
"""


def run_python(program: str, *words: str, folder) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *words], cwd=folder, capture_output=True, text=True, encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["demo"], 0),
        (["examples"], 0),
        (["explain", "the pizza came out of the oven", "--causal"], 0),
        (["explain", "i-love-ai", "--out", "love.html"], 0),
        (["check", "notes-i-love-ai"], 8),
        (["exercise", "--seed", "5"], 0),
        (["prove", "mine.py:attention"], 0),
        (["experiment"], 0),
        (["data"], 0),
        (["doctor"], 0),
        (["version"], 0),
        (["models"], 0),
        (["runs"], 0),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_core_needs_no_extra(words, code, tmp_path):
    (tmp_path / "mine.py").write_text(ATTENTION)
    process = run_python(RUN, *words, folder=tmp_path)
    assert process.returncode == code, process.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["generate", "stories", "The pizza"], "models"),
        (["look", "stories", "The pizza"], "models"),
        (["tokenize", "stories", "The pizza"], "models"),
        (["import", "./somewhere"], "models"),
        (["train", "gpt", "--data", "stories", "--steps", "1"], "models"),
        (["plan", "gpt"], "models"),
        (["serve", "stories"], "serve"),
        (["studio"], "serve"),
        (["explain", "i-love-ai", "--out", "love.png"], "plots"),
        (["data", "locales"], "models"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_command_that_needs_an_extra_says_what_to_install(words, extra, tmp_path):
    process = run_python(RUN, *words, folder=tmp_path)
    assert process.returncode == 5, process.stderr
    assert re.search(rf'pip install "peasy-attention\[{extra}\]"', process.stderr)
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("call", ["peasy.load('stories')", "peasy.generate('stories', 'x')"])
def test_python_says_what_to_install(call, tmp_path):
    process = run_python(f"{WITHOUT_EXTRAS}\nimport peasy\n{call}", folder=tmp_path)
    assert 'pip install "peasy-attention[models]"' in process.stderr
    assert process.stderr.splitlines()[-1].startswith("peasy.errors.MissingExtra")
