"""Sandboxed targets: resource limits, errors with line numbers, no secrets in the environment."""

from pathlib import Path

import pytest

from peasy.errors import InvalidInput, NotFound
from peasy.verification.implementation.examine import examine
from peasy.verification.implementation.remote import SandboxedTarget, SandboxLimits

NUMPY = """
import os
import numpy as np

print("hello from the file")

def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2)
    if os.environ.get("SECRET_KEY"):
        scores = scores / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v
"""


@pytest.fixture
def target(tmp_path):
    opened = []

    def make(text, name="attention", **limits):
        file = tmp_path / "mine.py"
        file.write_text(text, encoding="utf-8")
        opened.append(SandboxedTarget(file, name, SandboxLimits(**{"timeout": 120.0, **limits})))
        return opened[-1]

    yield make
    for sandbox in opened:
        sandbox.__exit__(None, None, None)
        assert sandbox.process.poll() is not None
        assert not sandbox.folder.exists()


def test_file_is_examined_without_access_to_secrets(target, monkeypatch, capfd):
    monkeypatch.setenv("SECRET_KEY", "hush")
    diagnosis = examine(target(NUMPY))
    assert diagnosis.mistakes == ("no scale",)
    assert (diagnosis.findings[0].line, diagnosis.findings[0].code) == (8, "scores = q @ k.swapaxes(-1, -2)")
    assert "hello" not in "".join(capfd.readouterr())


def test_module_of_a_file_is_instantiated_and_examined(target):
    from .specimen import wrong

    text = Path(wrong.__file__).read_text(encoding="utf-8")
    assert examine(target(text, "PositionsNotShifted")).mistakes == ("positions not shifted with the cache",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nwhile True:\n    pass\n", "stopped after the time limit of 3 s"),
        ("import sys\n\nsys.exit(3)\n", "line 3: SystemExit: 3"),
        ("import os\nos._exit(7)\n", "exited with code 7"),
        ("def attention(q, k, v:\n    return v\n", "line 1: SyntaxError"),
        ("import torhc\n", "line 1: ModuleNotFoundError"),
        ("import numpy as np\nx = np.zeros(1 << 40, dtype=np.uint8)\nx += 1\n", "line 2: .*MemoryError"),
    ],
)
def test_errors_in_a_file_are_reported(text, message, target):
    with pytest.raises(InvalidInput, match=message):
        target(text, timeout=3.0 if "while" in text else 120.0).describe()


def test_memory_limit_is_what_stops_it(target):
    """Inverse: with more address space the same file runs."""
    text = "import numpy as np\n\nx = np.zeros(3 << 30, dtype=np.uint8)\n\ndef attention(q, k, v):\n    return v\n"
    assert target(text, memory_bytes=16 << 30).describe().kind == "function"
    with pytest.raises(InvalidInput, match="MemoryError"):
        target(text, memory_bytes=3 << 30).describe()


def test_cpu_time_is_limited(target):
    with pytest.raises(InvalidInput, match="CPU time limit of 1 s"):
        target("while True:\n    pass\n", cpu_seconds=1).describe()


def test_missing_name(target):
    with pytest.raises(NotFound, match='no "atention"') as error:
        target(NUMPY, "atention").describe()
    assert error.value.hint == "Did you mean attention?"


def test_failing_call_names_the_line(target):
    text = "def attention(q, k, v):\n    return q @ k @ v @ undefined\n"
    with pytest.raises(InvalidInput, match="line 2"):
        examine(target(text))
