"""`import peasy`, `peasy --help` and `peasy demo` import no torch and no web libraries, and take little time."""

import json
import resource
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "fastapi", "uvicorn", "scipy", "pandas", "matplotlib")
IMPORT = "import peasy"
CLI = "from peasy.cli.app import run; run({argv!r})"


def loaded_modules(code: str) -> set[str]:
    """Return the top-level modules loaded after `code` has run in a new process."""
    program = (
        f"{code}\nimport sys, json; print(); print(json.dumps(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(process.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("code", "also_absent"),
    [
        (IMPORT, ("numpy", "rich", "cyclopts")),
        (CLI.format(argv=["--help"]), ("numpy",)),
        (CLI.format(argv=["demo"]), ()),
        (CLI.format(argv=["explain", "i-love-ai"]), ()),
        (CLI.format(argv=["check", "nothing.toml"]), ()),
    ],
    ids=["import", "help", "demo", "explain", "check"],
)
def test_heavy_libraries_are_not_imported(code, also_absent):
    assert not loaded_modules(code) & {*HEAVY, *also_absent}


def test_a_heavy_import_is_noticed():
    assert "uvicorn" in loaded_modules("import uvicorn")


@pytest.mark.parametrize(("argv", "seconds"), [(["--help"], 0.5), (["demo"], 2.0)], ids=["help", "demo"])
def test_startup_is_fast(argv, seconds):
    """CPU time, with a margin of 2 for a busy machine; `make bench` measures wall-clock time."""

    def cpu_seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "peasy", *argv], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cpu_seconds() for _ in range(3)) < 2 * seconds
