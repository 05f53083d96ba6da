"""Examination in a child process: with limits on time, memory and processes, and ended with all its descendants.

The request and the answer are JSON files. The examined code runs with the rights of the user: the limits protect from
accidents, not from malice.
"""

import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from peasy.atomic import write_atomic
from peasy.config import JsonDict
from peasy.errors import InvalidInput, NotFound, PeasyError, UsageError
from peasy.verification.implementation.process_tree import MARK, descendants, end_tree
from peasy.verification.verdict import Diagnosis, ImplementationFinding

_PASSED_ENV_VARS = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TEMP", "TMP", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "SYSTEMROOT",
)  # fmt: skip
"""Environment variables passed to the child process: no keys, no tokens."""


@dataclasses.dataclass(frozen=True)
class ChildLimits:
    """Limits of the child process: CPU and wall-clock seconds, bytes of address space and per file, processes."""

    cpu_seconds: int = 60
    timeout: float = 600.0  # ends code that waits; long, so that a busy computer stops no correct code
    memory_bytes: int = 8 << 30
    file_bytes: int = 64 << 20
    processes: int = 32

    def summary(self) -> str:
        """Return the limits as text.

        >>> ChildLimits().summary()
        'at most 60 s of CPU time and 8 GiB of memory'
        """
        return f"at most {self.cpu_seconds} s of CPU time and {self.memory_bytes / (1 << 30):g} GiB of memory"


@dataclasses.dataclass(frozen=True)
class ExaminationRequest:
    """What to examine: a file or a module, the name in it, and how to call it."""

    file: Path | None
    module: str
    name: str
    call: str | None = None
    seed: int = 0
    expected: str | None = None

    @property
    def where(self) -> str:
        """The file's or module's name, for messages."""
        return self.module if self.file is None else self.file.name


def examine_in_child(request: ExaminationRequest, limits: ChildLimits | None = None) -> Diagnosis:
    """Examine code in a child process. Errors of the code, also of its answer, name the file."""
    limits = limits or ChildLimits()
    mark = uuid.uuid4().hex
    with (
        tempfile.TemporaryDirectory(prefix="peasy-implementation-", ignore_cleanup_errors=True) as temporary,
        open(Path(temporary, "output.txt"), "wb") as output,
    ):
        folder = Path(temporary)
        process = _start(request, limits, folder, mark, output)
        try:
            _wait(process, request, limits, folder, mark)
            return _read_answer(request, limits, process, folder)
        finally:
            end_tree(process, mark)
            if process.stdin is not None:
                process.stdin.close()


def _start(
    request: ExaminationRequest, limits: ChildLimits, folder: Path, mark: str, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    content = {
        "file": "" if request.file is None else str(request.file.resolve()), "module": request.module,
        "name": request.name, "call": request.call, "seed": request.seed, "expected": request.expected,
        "folder": os.getcwd(), "limits": dataclasses.asdict(limits), "answer": str(folder / "answer.json"),
    }  # fmt: skip
    write_atomic(folder / "request.json", json.dumps(content))
    environment = {name: value for name, value in os.environ.items() if name in _PASSED_ENV_VARS}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", MARK: mark}
    environment |= {"TORCHDYNAMO_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}
    environment |= {"HF_HUB_OFFLINE": "1"}  # code that loads a model when imported must not wait for it
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "peasy.verification.implementation.worker", str(folder / "request.json")],
        stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment,
        cwd=None if request.file is None else request.file.resolve().parent,
    )  # fmt: skip


def _wait(
    process: subprocess.Popen[bytes], request: ExaminationRequest, limits: ChildLimits, folder: Path, mark: str
) -> None:
    """Wait for the answer; too much time or too many processes end it."""
    deadline, answer = time.monotonic() + limits.timeout, folder / "answer.json"
    for number in itertools.count():
        if answer.exists():
            return
        try:
            process.wait(timeout=0.05)
            return
        except subprocess.TimeoutExpired:
            pass
        if time.monotonic() > deadline:
            raise _stopped(request, f"{limits.timeout:g} s")
        # looking through all processes of the computer takes as long as the examination if it is done each time
        if number % 5 == 0 and len(descendants(process.pid, mark)) > limits.processes:
            raise InvalidInput(f"{request.where} was stopped: it started more than {limits.processes} processes.")


def _stopped(request: ExaminationRequest, limit: str) -> PeasyError:
    hint = "An endless loop, or work at import? Put such work under if __name__ == '__main__':"
    return InvalidInput(f"{request.where} was stopped after the time limit of {limit}.", hint=hint)


def _read_answer(
    request: ExaminationRequest, limits: ChildLimits, process: subprocess.Popen[bytes], folder: Path
) -> Diagnosis:
    path = folder / "answer.json"
    if not path.exists():
        raise _exit_error(request, limits, process, folder)
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
        if "diagnosis" in answer:
            return _decode(answer["diagnosis"])
        if "import_error" in answer:
            raise _import_error(request, answer["import_error"])
        error = answer["error"]
        kinds: Mapping[str, type[PeasyError]] = {"NotFound": NotFound, "UsageError": UsageError}
        raise kinds.get(error["kind"], InvalidInput)(str(error["message"]), hint=error["hint"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInput(
            f"{request.where} gave an answer that is no diagnosis: it changed the examination that was running it.",
            hint="Does it replace functions of Python, json or torch, or write into other files?",
        ) from None


def _decode(data: JsonDict) -> Diagnosis:
    findings = tuple(ImplementationFinding(**finding) for finding in data.pop("findings"))
    data = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    diagnosis = Diagnosis(**data, findings=findings)
    for each in (*diagnosis.conventions, *diagnosis.unknown, *diagnosis.notes, diagnosis.name, diagnosis.verdict):
        if not isinstance(each, str):
            raise TypeError
    return diagnosis


def _import_error(request: ExaminationRequest, error: JsonDict) -> PeasyError:
    file = Path(error["file"]).name if error["file"] else request.where
    where = f"{file}, line {error['line']}" if error["line"] else request.where
    hint = error["code"] or None
    if "ModuleNotFoundError" in error["error"] or "ImportError" in error["error"]:
        hint = f"{error['code']}\nInstall what it imports, or set PYTHONPATH, and run it again."
    return InvalidInput(f"{where}: {error['error']}", hint=hint)


def _exit_error(
    request: ExaminationRequest, limits: ChildLimits, process: subprocess.Popen[bytes], folder: Path
) -> PeasyError:
    code = process.wait()
    if code == -24:  # SIGXCPU
        return _stopped(request, f"{limits.cpu_seconds} s of CPU time")
    output = (folder / "output.txt").read_text(encoding="utf-8", errors="replace").strip()[-500:]
    outcome = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return InvalidInput(f"{request.where} {outcome} during the examination.", hint=output or None)
