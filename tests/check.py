"""Everything a change must pass, one `python -m` call after the other; the same on every system, with or without make.

python tests/check.py                     all steps; stops at the first that fails
python tests/check.py --without-tests     all but the tests
"""

import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEPS = (
    "-m ruff format --check",
    "-m ruff check",
    "-m mypy",
    # What systems and versions of Python offer differs: the types must hold on all of them.
    "-m mypy --platform win32 --python-version 3.12 --cache-dir .mypy_cache/win32",
    "-m mypy --platform darwin --python-version 3.13 --cache-dir .mypy_cache/darwin",
    "-m mypy --platform linux --python-version 3.14 --cache-dir .mypy_cache/linux",
    "-c 'from importlinter.cli import lint_imports_command as lint; lint()' --no-cache",
    "docs/generate.py --check",
    "-m mkdocs build --strict --quiet --site-dir site",
)
TESTS = "-m pytest -n 2 --dist worksteal"


def main(arguments: list[str]) -> int:
    """Run the steps and return the exit code of the first that fails."""
    for step in STEPS if "--without-tests" in arguments else (*STEPS, TESTS):
        print(f"python {step}", flush=True)
        if code := subprocess.run([sys.executable, *shlex.split(step)], cwd=ROOT, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
