"""`peasy doctor`: checks Python, libraries and folders of the installation, with a fix for each problem."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from peasy.cli.command import CommandOutput, DocumentResult, Flags
from peasy.cli.settings import config_dir
from peasy.extras import EXTRAS
from peasy.views.document import Document, Paragraph, Table

_REQUIRED_MODULES = (
    "numpy",
    "array_api_compat",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "sacrebleu",
    "babel",
    "rich",
)
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@dataclass(frozen=True)
class _InstallCheck:
    """Result of one check: whether it works, details, and the fix; `required`: peasy cannot run without it."""

    name: str
    passed: bool
    details: str
    fix: str = ""
    required: bool = True

    @property
    def mark(self) -> str:
        """Mark that is readable without colour."""
        return "✓" if self.passed else "✗" if self.required else "–"


def doctor(*, flags: Flags = Flags()) -> CommandOutput:
    """Check the installation, with a fix for each problem.

    For example:

        peasy doctor
        peasy doctor --json
    """
    checks = list(_run_checks())
    passed = all(check.passed for check in checks if check.required)
    facts = [vars(check) for check in checks]
    return CommandOutput(
        DocumentResult(_document(checks, passed), {"passed": passed, "checks": facts}),
        suggestions=[check.fix for check in checks if check.required and not check.passed],
        exit_code=0 if passed else 8,
    )


def _run_checks() -> Iterator[_InstallCheck]:
    """Run all checks."""
    yield _python()
    yield from (_module(name, fix="pip install peasy") for name in _REQUIRED_MODULES)
    yield from (
        _module(name, fix=f'pip install "peasy[{extra}]"', required=False) for name, extra in sorted(EXTRAS.items())
    )
    yield _folder("settings folder", config_dir())
    yield _folder("temporary folder", Path(tempfile.gettempdir()))
    yield _chromium()
    yield _InstallCheck("network", True, "not checked: peasy uses the network only for downloads you ask for")


def find_chromium() -> str | None:
    """Return the path of a Chromium browser, or None."""
    return next(filter(None, map(shutil.which, _CHROMIUM)), None)


def _python() -> _InstallCheck:
    supported = sys.version_info >= (3, 11)
    return _InstallCheck(
        "python", supported, platform.python_version(), "" if supported else "install Python 3.11 or newer"
    )


def _module(name: str, *, fix: str, required: bool = True) -> _InstallCheck:
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return _InstallCheck(name, False, "not installed", fix, required)
    except Exception as error:  # a broken library may raise anything; the other checks must still run
        return _InstallCheck(
            name, False, f"broken: {type(error).__name__}: {error}", f"{fix} --force-reinstall", required
        )
    details = str(getattr(module, "__version__", "") or "installed")
    if name == "torch":
        details += f", {module.get_num_threads()} threads, {'cuda' if module.cuda.is_available() else 'cpu'}"
    return _InstallCheck(name, True, details, required=required)


def _folder(name: str, path: Path) -> _InstallCheck:
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK)
    return _InstallCheck(
        name, writable, str(path), "" if writable else f"make it writable: chmod u+w {nearest}", required=False
    )


def _chromium() -> _InstallCheck:
    path = find_chromium()
    fix = "" if path else "apt-get install chromium (only needed to test the web pages)"
    return _InstallCheck("chromium", bool(path), path or "not installed", fix, required=False)


def _document(checks: list[_InstallCheck], passed: bool) -> Document:
    rows = tuple((check.mark, check.name, check.details, check.fix) for check in checks)
    verdict = (
        Paragraph("Everything required works.", "good") if passed else Paragraph("Required parts are missing.", "bad")
    )
    legend = Paragraph("✓ works   – optional, not installed   ✗ required, missing", "note")
    return Document("peasy doctor", (verdict, Table(("", "part", "status", "fix"), rows), legend))
