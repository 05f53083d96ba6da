"""A full or failing disk at any write: a clear error, nothing half-written, and the work can be done again."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The library that fails writes, compiled."""
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("library") / "failing_writes.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, HERE / "failing_writes.c", "-ldl"], check=True)
    return path


def sweep(library: Path, folder: Path, work: str, count: int) -> dict:
    done = subprocess.run(
        [sys.executable, str(HERE / "full_disk.py"), str(folder), work, str(count)], capture_output=True, text=True,
        env=os.environ | {"LD_PRELOAD": str(library)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("work", "count"), [("train", 4), ("prepare", 4), ("export", 4), ("results", 4), ("temporary", 4), ("upload", 0)]
)
def test_some_failing_writes(library, tmp_path, work, count):
    result = sweep(library, tmp_path, work, count)
    assert result["trials"] >= 4
    assert result["wrong"] == []


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("work", ["train", "prepare", "export", "results", "temporary"])
def test_every_failing_write(library, tmp_path, work):
    result = sweep(library, tmp_path, work, 0)
    assert result["trials"] == 2 * result["writes"]
    assert result["trials"] >= 40 if work == "temporary" else result["trials"] > 50
    assert result["wrong"] == []


def test_a_half_written_line_would_be_detected(library, tmp_path):
    """The inverse: without `append_durably`, a full disk leaves half of a chunk, and an error without bytes."""
    changed = tmp_path / "changed"
    changed.mkdir()
    shutil.copy(HERE / "harness.py", changed)
    script = (HERE / "full_disk.py").read_text(encoding="utf-8")
    careless = (
        "import peasy.server.upload\npeasy.server.upload.append_durably = lambda file, path, data: file.write(data)\n"
    )
    (changed / "full_disk.py").write_text(script.replace("LIBRARY = ", f"{careless}LIBRARY = ", 1), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(changed / "full_disk.py"), str(tmp_path), "upload", "0"], capture_output=True, text=True,
        env=os.environ | {"LD_PRELOAD": str(library)},
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1])["wrong"]
