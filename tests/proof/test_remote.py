"""A person's file runs in a process of its own: limits hold, errors are told with their line, secrets stay away."""

from pathlib import Path

import pytest

from peasy.errors import InvalidInput, NotFound
from peasy.proof.doctor.examine import examine
from peasy.proof.doctor.remote import Limits, Remote

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
def patient(tmp_path):
    opened = []

    def make(text, name="attention", **limits):
        file = tmp_path / "mine.py"
        file.write_text(text, encoding="utf-8")
        opened.append(Remote(file, name, Limits(**{"seconds": 120.0, **limits})))
        return opened[-1]

    yield make
    for each in opened:
        each.__exit__(None, None, None)
        assert each.process.poll() is not None
        assert not each.folder.exists()


def test_a_file_is_examined_and_sees_no_secrets(patient, monkeypatch, capfd):
    monkeypatch.setenv("SECRET_KEY", "hush")
    found = examine(patient(NUMPY))
    assert found.mistakes == ("no scale",)
    assert (found.findings[0].line, found.findings[0].code) == (8, "scores = q @ k.swapaxes(-1, -2)")
    assert "hello" not in "".join(capfd.readouterr())


def test_a_module_of_a_file_is_made_and_examined(patient):
    from .specimen import wrong

    text = Path(wrong.__file__).read_text(encoding="utf-8")
    assert examine(patient(text, "PositionsNotShifted")).mistakes == ("positions not shifted with the cache",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\nwhile True:\n    pass\n", "stopped after 3 s, its limit of time"),
        ("import sys\n\nsys.exit(3)\n", "line 3: SystemExit: 3"),
        ("import os\nos._exit(7)\n", "left with exit code 7"),
        ("def attention(q, k, v:\n    return v\n", "line 1: SyntaxError"),
        ("import torhc\n", "line 1: ModuleNotFoundError"),
        ("import numpy as np\nx = np.zeros(1 << 40, dtype=np.uint8)\nx += 1\n", "line 2: .*MemoryError"),
    ],
)
def test_what_goes_wrong_in_a_file_is_told(text, says, patient):
    with pytest.raises(InvalidInput, match=says):
        patient(text, seconds=3.0 if "while" in text else 120.0).describe()


def test_without_a_limit_of_memory_it_would_go_on(patient):
    """The inverse: with more address space the same file gets what it asks for."""
    text = "import numpy as np\n\nx = np.zeros(3 << 30, dtype=np.uint8)\n\ndef attention(q, k, v):\n    return v\n"
    assert patient(text, memory=16 << 30).describe().kind == "function"
    with pytest.raises(InvalidInput, match="MemoryError"):
        patient(text, memory=3 << 30).describe()


def test_processor_time_is_limited_too(patient):
    with pytest.raises(InvalidInput, match="1 s of processor time"):
        patient("while True:\n    pass\n", processor=1).describe()


def test_a_name_that_is_not_there(patient):
    with pytest.raises(NotFound, match='no "atention"') as error:
        patient(NUMPY, "atention").describe()
    assert error.value.hint == "Did you mean attention?"


def test_a_failing_call_names_the_line(patient):
    text = "def attention(q, k, v):\n    return q @ k @ v @ undefined\n"
    with pytest.raises(InvalidInput, match="line 2"):
        examine(patient(text))
