"""`peasy doctor`: checks the installation, with a fix for each problem."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from peasy.cli.door import Answer, Flags, Page
from peasy.cli.settings import config_home
from peasy.parts import EXTRAS
from peasy.views.document import Document, Paragraph, Table

_CORE = ("numpy", "array_api_compat", "tokenizers", "safetensors", "huggingface_hub", "sacrebleu", "babel", "rich")
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@dataclass(frozen=True)
class Finding:
    """Result of one check: whether it works, details, and the fix; `needed`: peasy cannot run without it."""

    part: str
    works: bool
    seen: str
    fix: str = ""
    needed: bool = True

    @property
    def mark(self) -> str:
        """Mark that is readable without colour."""
        return "✓" if self.works else "✗" if self.needed else "–"


def doctor(*, flags: Flags = Flags()) -> Answer:
    """Check the installation, with a fix for each problem.

    For example:

        peasy doctor
        peasy doctor --json
    """
    findings = list(examine())
    passed = all(finding.works for finding in findings if finding.needed)
    facts = [vars(finding) for finding in findings]
    return Answer(
        Page(_document(findings, passed), {"passed": passed, "findings": facts}),
        next=[finding.fix for finding in findings if finding.needed and not finding.works],
        exit_code=0 if passed else 8,
    )


def examine() -> Iterator[Finding]:
    """Run all checks."""
    yield _python()
    yield from (_module(name, fix="pip install peasy") for name in _CORE)
    yield from (
        _module(name, fix=f'pip install "peasy[{extra}]"', needed=False) for name, extra in sorted(EXTRAS.items())
    )
    yield _folder("settings folder", config_home())
    yield _folder("temporary folder", Path(tempfile.gettempdir()))
    yield _chromium()
    yield Finding("network", True, "not checked: peasy uses the network only for downloads you ask for")


def find_chromium() -> str | None:
    """Return the path of a Chromium browser, or None."""
    return next(filter(None, map(shutil.which, _CHROMIUM)), None)


def _python() -> Finding:
    supported = sys.version_info >= (3, 11)
    return Finding("python", supported, platform.python_version(), "" if supported else "install Python 3.11 or newer")


def _module(name: str, *, fix: str, needed: bool = True) -> Finding:
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return Finding(name, False, "not installed", fix, needed)
    except Exception as error:  # a broken library may raise anything; the other checks must still run
        return Finding(name, False, f"broken: {type(error).__name__}: {error}", f"{fix} --force-reinstall", needed)
    details = str(getattr(module, "__version__", "") or "installed")
    if name == "torch":
        details += f", {module.get_num_threads()} threads, {'cuda' if module.cuda.is_available() else 'cpu'}"
    return Finding(name, True, details, needed=needed)


def _folder(part: str, path: Path) -> Finding:
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK)
    return Finding(
        part, writable, str(path), "" if writable else f"make it writable: chmod u+w {nearest}", needed=False
    )


def _chromium() -> Finding:
    path = find_chromium()
    fix = "" if path else "apt-get install chromium (only needed to test the web pages)"
    return Finding("chromium", bool(path), path or "not installed", fix, needed=False)


def _document(findings: list[Finding], healthy: bool) -> Document:
    rows = tuple((finding.mark, finding.part, finding.seen, finding.fix) for finding in findings)
    verdict = (
        Paragraph("Everything required works.", "good") if healthy else Paragraph("Required parts are missing.", "bad")
    )
    legend = Paragraph("✓ works   – optional, not installed   ✗ required, missing", "note")
    return Document("peasy doctor", (verdict, Table(("", "part", "status", "fix"), rows), legend))
