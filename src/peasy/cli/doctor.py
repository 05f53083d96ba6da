"""`peasy doctor` and `peasy version`: Python, libraries and folders of the installation."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

from peasy import __version__
from peasy.checkpoint.paths import data_dir
from peasy.checkpoint.ram import available_ram, format_bytes
from peasy.cli.command import CommandOutput, DocumentResult, Flags
from peasy.cli.settings import config_dir
from peasy.extras import CPU_TORCH, EXTRAS, install_line
from peasy.views.document import Document, Paragraph, Table

_REQUIRED_MODULES = (
    "numpy", "array_api_compat", "annotated_types", "cyclopts", "filelock", "platformdirs", "rich",
)  # fmt: skip
_LOW_MEMORY = 1 << 30
"""With fewer free bytes, `doctor` says what to do."""
_CPU_FEATURES = (
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "neon", "asimd", "bf16", "i8mm",
)  # fmt: skip
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@dataclass(frozen=True)
class _InstallCheck:
    """Result of one check: whether it works, details, and the fix if it does not; `required`: peasy needs it."""

    name: str
    passed: bool
    details: str
    fix: str = ""
    required: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fix", "" if self.passed else self.fix)

    @property
    def mark(self) -> str:
        """Mark that is readable without colour."""
        return "✓" if self.passed else "✗" if self.required else "–"


def doctor(*, flags: Flags = Flags()) -> CommandOutput:
    """Check the installation, with a fix for each problem."""
    checks = list(_run_checks())
    fixes = [check.fix for check in checks if check.required and not check.passed]
    data = {"passed": not fixes, "checks": [vars(check) for check in checks]}
    rows = tuple((check.mark, check.name, check.details, check.fix) for check in checks)
    verdict = ("Required parts are missing.", "bad") if fixes else ("Everything required works.", "good")
    legend = Paragraph("✓ works   – optional, not installed   ✗ required, missing", "note")
    parts = (Paragraph(*verdict), Table(("", "part", "status", "fix"), rows), legend)
    result = DocumentResult(Document("peasy doctor", parts), data)
    return CommandOutput(result, suggestions=fixes, exit_code=8 if fixes else 0)


def _run_checks() -> Iterator[_InstallCheck]:
    yield _InstallCheck(
        "python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer"
    )
    yield from (_module(name, fix=install_line()) for name in _REQUIRED_MODULES)
    yield from (_module(name, fix=_fix(name, extra), required=False) for name, extra in sorted(EXTRAS.items()))
    yield _cpu()
    yield _memory()
    yield _folder("settings folder", config_dir())
    yield _folder("data folder", data_dir())
    yield _folder("temporary folder", Path(tempfile.gettempdir()))
    path, fix = find_chromium(), "apt-get install chromium (only needed to test the web pages)"
    yield _InstallCheck("chromium", bool(path), path or "not installed", fix, required=False)
    yield _InstallCheck("network", True, "not checked: peasy uses the network only for downloads you ask for")


def _fix(module: str, extra: str) -> str:
    """Return how to install an optional module; torch first from its CPU index, where pip would bring CUDA."""
    if module != "torch" or sys.platform != "linux":
        return install_line(extra)
    return f"{install_line(extra)}, or without a GPU first: {CPU_TORCH}"


def _cpu() -> _InstallCheck:
    """Check that not more threads are asked for than this process has cores."""
    cores = os.cpu_count() or 1
    if sys.platform == "linux":  # a statement: mypy reads a condition inside an expression for every system
        cores = len(os.sched_getaffinity(0))
    threads = os.environ.get("OMP_NUM_THREADS", "")
    too_many = threads.isdigit() and int(threads) > cores
    fix = f"OMP_NUM_THREADS={cores}: more threads than cores make everything slower"
    features = " ".join(_cpu_features()) or platform.machine()
    details = f"{cores} cores, OMP_NUM_THREADS={threads or 'not set'}, {features}"
    return _InstallCheck("cpu", not too_many, details, fix, required=False)


def _cpu_features() -> list[str]:
    """Return the vector instructions that inference uses; empty where the system does not list them."""
    try:
        known = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        return []
    return [name for name in _CPU_FEATURES if name in known]


def _memory() -> _InstallCheck:
    free = available_ram()
    if free is None:
        return _InstallCheck("free memory", True, "not known on this system", required=False)
    fix = "close other programs, or use smaller models"
    return _InstallCheck("free memory", free >= _LOW_MEMORY, format_bytes(free), fix, required=False)


def find_chromium() -> str | None:
    """Return the path of a Chromium browser, or None."""
    return next(filter(None, map(shutil.which, _CHROMIUM)), None)


def _module(name: str, *, fix: str, required: bool = True) -> _InstallCheck:
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return _InstallCheck(name, False, "not installed", fix, required)
    except Exception as error:  # a broken library may raise anything; the other checks must still run
        details = f"broken: {type(error).__name__}: {error}"
        return _InstallCheck(name, False, details, f"{fix} --force-reinstall", required)
    details = str(getattr(module, "__version__", "") or _version(name) or "installed")
    if name == "torch":
        details += f", {module.get_num_threads()} threads, {'cuda' if module.cuda.is_available() else 'cpu'}"
    return _InstallCheck(name, True, details, required=required)


def _folder(name: str, path: Path) -> _InstallCheck:
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK)
    return _InstallCheck(name, writable, str(path), f"make it writable: chmod u+w {nearest}", required=False)


def version(*, flags: Flags = Flags()) -> CommandOutput:
    """Print the versions of peasy and its dependencies."""
    versions: dict[str, str | None] = {"peasy": __version__, "python": platform.python_version()}
    versions |= {name: _version(name) for name in (*_REQUIRED_MODULES, *EXTRAS)}
    rows = tuple((name, number or "not installed") for name, number in versions.items())
    document = Document(f"peasy {__version__}", (Table(("package", "version"), rows),))
    return CommandOutput(DocumentResult(document, versions))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
