"""Examination in a child process: limits, descendants, errors with line numbers, packages, notebooks, scripts."""

import errno
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import pytest

from peasy.errors import InvalidInput, NotFound, ResourceUnavailable
from peasy.verification.implementation.child import ChildLimits, ExaminationRequest, examine_in_child
from peasy.verification.implementation.loading import attention_candidates, load_module, python_source

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
def run(tmp_path):
    def run(text, name="attention", call=None, **limits):
        file = tmp_path / "mine.py"
        file.write_text(text, encoding="utf-8")
        return examine_in_child(ExaminationRequest(file, "", name, call), ChildLimits(**{"timeout": 200.0, **limits}))

    return run


def test_file_is_examined_without_access_to_secrets(run, monkeypatch, capfd):
    monkeypatch.setenv("SECRET_KEY", "hush")
    diagnosis = run(NUMPY)
    assert diagnosis.mistakes == ("no scale",)
    assert (diagnosis.findings[0].line, diagnosis.findings[0].code) == (8, "scores = q @ k.swapaxes(-1, -2)")
    assert "hello" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nwhile [x]:\n    pass\ndef attention(q, k, v):\n    while True:\n        pass\n", "time limit of 8 s"),
        ("import sys\n\nsys.exit(3)\n", "line 3: SystemExit: 3"),
        ("import os\nos._exit(7)\n", "exited with code 7"),
        ("def attention(q, k, v:\n    return v\n", "line 1: SyntaxError"),
        ("def attention(q, k, v):\n    return q @ k @ v @ undefined\n", "(?s)Line 2"),
        ("import json\njson.dumps = lambda *a, **k: '{}'\n" + NUMPY, "no diagnosis"),
    ],
)
def test_errors_in_a_file_are_reported(text, message, run):
    with pytest.raises(InvalidInput, match=message):
        run(text, timeout=8.0 if "while" in text else 200.0)


def test_cpu_time_is_limited(run):
    with pytest.raises(InvalidInput, match="limit of 4 s of CPU time"):
        run("import math\nx = [math.sqrt(i) for i in range(10**10)]\n", cpu_seconds=4)


def test_waiting_is_no_cpu_time_and_a_question_gets_no_answer(run):
    """A busy computer makes code wait: only what it computes counts. `input()` must not wait for the long limit."""
    assert ChildLimits().timeout >= 10 * ChildLimits().cpu_seconds
    assert run("answer = input('continue?')\n" + NUMPY).mistakes == ("no scale",)


DETACHED = """
import os, time, pathlib
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pathlib.Path("started").write_text(str(os.getpid()))
        time.sleep(1000)
    os._exit(0)
while not pathlib.Path("started").exists() or not pathlib.Path("started").read_text():
    time.sleep(0.01)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("end", ["", "\nos._exit(5)\n"])
def test_detached_descendants_are_ended(run, tmp_path, end):
    source = f"exec({DETACHED!r}){end and chr(10) + 'import os' + end}" + NUMPY
    if end:
        with pytest.raises(InvalidInput, match="code 5"):
            run(source)
    else:
        assert run(source).mistakes == ("no scale",)
    process = int((tmp_path / "started").read_text())
    deadline = time.monotonic() + 60
    while Path(f"/proc/{process}").exists() and _state(process) not in "ZX" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{process}").exists() or _state(process) in "ZX"


def _state(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_number_of_processes_is_limited(run):
    source = (
        "import os, time\nexec('for i in range(8):\\n if os.fork() == 0: time.sleep(1000)')\nexec('time.sleep(1000)')\n"
    )
    with pytest.raises(InvalidInput, match="more than 4 processes"):
        run(source, processes=4)


def test_a_full_disk_is_an_error_with_a_path_and_leaves_nothing(run, monkeypatch, tmp_path):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceUnavailable, match=rf"The disk is full: {re.escape(str(tmp_path))}.*needed.*free"):
        run("def attention(q, k, v): ...")
    assert [path for path in tmp_path.iterdir() if path.name.startswith("peasy-implementation")] == []


def test_missing_name(run):
    with pytest.raises(NotFound, match='no "atention"') as error:
        run(NUMPY, "atention")
    assert error.value.hint == "Did you mean attention?"


def test_package_with_relative_imports(tmp_path):
    package = tmp_path / "pack" / "layers"
    package.mkdir(parents=True)
    (tmp_path / "pack" / "__init__.py").write_text("import not_installed_anywhere\n", encoding="utf-8")
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "soft.py").write_text("from scipy_of_the_future import x\n" + NUMPY, encoding="utf-8")
    (package / "main.py").write_text("from .soft import attention\nfrom ..layers import soft\n", encoding="utf-8")
    diagnosis = examine_in_child(ExaminationRequest(package / "main.py", "", "attention"), ChildLimits(timeout=200))
    assert diagnosis.mistakes == ("no scale",)
    assert diagnosis.findings[0].file.endswith("soft.py")
    assert "not_installed_anywhere" in diagnosis.notes[0]


def test_script_that_trains_is_loaded_by_its_definitions(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "script_that_trains.py"
    file.write_text("width = 8\nfor _ in range(3):\n    raise ValueError\nopen('none.txt')\n" + NUMPY, encoding="utf-8")
    module, notes = load_module(file)
    assert (module.width, callable(module.attention)) == (8, True)
    assert "not run" in notes[0]


def test_annotations_of_a_file_that_runs_by_statements_are_not_evaluated(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "annotated_attention.py"
    text = "from __future__ import annotations\nraise OSError\ndef attention(q: float['b t d']):\n    return q\n"
    file.write_text(text, encoding="utf-8")
    assert callable(load_module(file)[0].attention)
    file = tmp_path / "annotated_now.py"
    file.write_text(text.partition("\n")[2], encoding="utf-8")
    assert not hasattr(load_module(file)[0], "attention")


def test_notebook_cells_are_one_source(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["text"]},
        {"cell_type": "code", "source": ["%pip install x\n", "a = 1"]},
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert python_source(tmp_path / "n.ipynb") == "# %pip install x\na = 1\n"
    (tmp_path / "bad.ipynb").write_text("{", encoding="utf-8")
    with pytest.raises(InvalidInput, match="not a notebook"):
        python_source(tmp_path / "bad.ipynb")


def test_candidates_are_found_without_running(tmp_path):
    (tmp_path / "a.py").write_text("raise SystemExit\n" + NUMPY + "\ndef other(x):\n    return x\n", encoding="utf-8")
    assert list(attention_candidates(tmp_path / "a.py")) == ["attention"]
