"""peasy installed without torch: worked examples work, and a model command says what to install."""

import subprocess
import sys

import pytest

WITHOUT_TORCH = """
import sys

class BlockTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, BlockTorch())
from peasy.cli.app import run

sys.exit(run(sys.argv[1:]))
"""


def run_without_torch(*words: str, folder) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *words], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["demo"], 0),
        (["explain", "the pizza came out of the oven", "--causal"], 0),
        (["explain", "i-love-ai", "--out", "love.html"], 0),
        (["check", "notes-i-love-ai"], 8),
        (["exercise", "--seed", "5"], 0),
        (["doctor"], 0),
        (["models"], 0),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_worked_examples_need_no_torch(words, code, tmp_path):
    process = run_without_torch(*words, folder=tmp_path)
    assert process.returncode == code, process.stderr


def test_a_model_command_says_what_to_install(tmp_path):
    process = run_without_torch("import", "./somewhere", folder=tmp_path)
    assert process.returncode == 5
    assert 'pip install "peasy[models]"' in process.stderr
    assert "Traceback" not in process.stderr
