"""`import peasy`, `peasy --help` and `peasy demo` are light: no torch, no web, little time."""

import json
import resource
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "fastapi", "uvicorn", "scipy", "pandas", "matplotlib")
IMPORT = "import peasy"
CLI = "from peasy.cli.app import run; run({argv!r})"


def loaded(code: str) -> set[str]:
    """The top-level modules that are in memory after the code has run in a new process."""
    told = f"{code}\nimport sys, json; print(); print(json.dumps(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("code", "also"),
    [
        (IMPORT, ("numpy", "rich", "cyclopts")),
        (CLI.format(argv=["--help"]), ("numpy",)),
        (CLI.format(argv=["demo"]), ()),
        (CLI.format(argv=["explain", "i-love-ai"]), ()),
        (CLI.format(argv=["check", "nothing.toml"]), ()),
    ],
    ids=["import", "help", "demo", "explain", "check"],
)
def test_heavy_libraries_stay_out(code, also):
    assert not loaded(code) & {*HEAVY, *also}


def test_this_test_can_see_a_heavy_library():
    assert "uvicorn" in loaded("import uvicorn")


@pytest.mark.parametrize(("argv", "seconds"), [(["--help"], 0.5), (["demo"], 2.0)], ids=["help", "demo"])
def test_the_first_minute_is_quick(argv, seconds):
    """In processor time with as much again for a busy machine; `make bench` measures on the clock."""

    def took() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "peasy", *argv], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(took() for _ in range(3)) < 2 * seconds
