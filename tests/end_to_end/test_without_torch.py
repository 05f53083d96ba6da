"""The path of somebody who installed peasy alone: paper works without torch, and a model says what to install."""

import subprocess
import sys

import pytest

ALONE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from peasy.cli.app import run

sys.exit(run(sys.argv[1:]))
"""


def alone(*words: str, folder) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", ALONE, *words], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["demo"], 0),
        (["explain", "the pizza came out of the oven", "--causal"], 0),
        (["explain", "i-love-ai", "--out", "love.html"], 0),
        (["check", "003-i-love-ai"], 8),
        (["exercise", "--seed", "5"], 0),
        (["doctor"], 0),
        (["models"], 0),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_paper_needs_no_torch(words, code, tmp_path):
    done = alone(*words, folder=tmp_path)
    assert done.returncode == code, done.stderr


def test_a_model_says_what_to_install(tmp_path):
    done = alone("import", "./somewhere", folder=tmp_path)
    assert done.returncode == 5
    assert 'pip install "peasy[models]"' in done.stderr
    assert "Traceback" not in done.stderr
