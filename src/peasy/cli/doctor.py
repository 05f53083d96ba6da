"""`peasy doctor`: what works here, and the exact fix for what does not."""

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
    """One thing looked at: does it work, what was seen, how to put it right; `needed` when peasy cannot do without."""

    part: str
    works: bool
    seen: str
    fix: str = ""
    needed: bool = True

    @property
    def mark(self) -> str:
        """A sign that needs no colour."""
        return "✓" if self.works else "✗" if self.needed else "–"


def doctor(*, flags: Flags = Flags()) -> Answer:
    """What works here, and the exact fix for what does not.

    For example:

        peasy doctor
        peasy doctor --json
    """
    findings = list(examine())
    healthy = all(finding.works for finding in findings if finding.needed)
    facts = [vars(finding) for finding in findings]
    return Answer(
        Page(_document(findings, healthy), {"passed": healthy, "findings": facts}),
        next=[finding.fix for finding in findings if finding.needed and not finding.works],
        exit_code=0 if healthy else 8,
    )


def examine() -> Iterator[Finding]:
    """Look at everything once, by using it."""
    yield _python()
    yield from (_module(name, fix="pip install peasy") for name in _CORE)
    yield from (
        _module(name, fix=f'pip install "peasy[{extra}]"', needed=False) for name, extra in sorted(EXTRAS.items())
    )
    yield _folder("settings folder", config_home())
    yield _folder("temporary folder", Path(tempfile.gettempdir()))
    yield _chromium()
    yield Finding("network", True, "not asked: peasy goes online only when a command says so")


def find_chromium() -> str | None:
    """The path of a Chromium that can open pages, if there is one."""
    return next(filter(None, map(shutil.which, _CHROMIUM)), None)


def _python() -> Finding:
    fine = sys.version_info >= (3, 11)
    return Finding("python", fine, platform.python_version(), "" if fine else "install Python 3.11 or newer")


def _module(name: str, *, fix: str, needed: bool = True) -> Finding:
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return Finding(name, False, "not installed", fix, needed)
    except Exception as error:  # a broken library may raise anything at all, and the doctor must go on
        return Finding(name, False, f"broken: {type(error).__name__}: {error}", f"{fix} --force-reinstall", needed)
    seen = str(getattr(module, "__version__", "") or "installed")
    if name == "torch":
        seen += f", {module.get_num_threads()} threads, {'cuda' if module.cuda.is_available() else 'cpu'}"
    return Finding(name, True, seen, needed=needed)


def _folder(part: str, path: Path) -> Finding:
    nearest = next(place for place in (path, *path.parents) if place.exists())
    fine = nearest.is_dir() and os.access(nearest, os.W_OK)
    return Finding(part, fine, str(path), "" if fine else f"make it writable: chmod u+w {nearest}", needed=False)


def _chromium() -> Finding:
    found = find_chromium()
    fix = "" if found else "apt-get install chromium (only the tests of pages need it)"
    return Finding("chromium", bool(found), found or "not installed", fix, needed=False)


def _document(findings: list[Finding], healthy: bool) -> Document:
    rows = tuple((each.mark, each.part, each.seen, each.fix) for each in findings)
    verdict = Paragraph("All that peasy needs works.", "good") if healthy else Paragraph("Something is missing.", "bad")
    legend = Paragraph("✓ works   – optional, absent   ✗ needed, absent", "note")
    return Document("peasy doctor", (verdict, Table(("", "part", "seen", "fix"), rows), legend))
