"""Sandboxed target: a user's file runs in a child process with time and memory limits.

Requests and responses are lines of JSON over pipes, arrays go through safetensors files; nothing is pickled.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from safetensors.numpy import load_file, save_file

from peasy.errors import InvalidInput, NotFound, PeasyError, did_you_mean
from peasy.proof.doctor.mistake import Source
from peasy.proof.doctor.subject import Answer, Description, Earlier, Fault, Named, Parameter

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""Environment variables passed to the child process: no keys, no tokens."""


@dataclass(frozen=True)
class Limits:
    """Limits of the child process: total wall-clock seconds, CPU seconds, bytes of address space, bytes per file."""

    seconds: float = 60.0
    processor: int = 60
    memory: int = 8 << 30
    file: int = 64 << 20

    def says(self) -> str:
        """Return the limits as text.

        >>> Limits().says()
        'at most 60 s and 8 GiB of memory'
        """
        return f"at most {self.seconds:g} s and {self.memory / (1 << 30):g} GiB of memory"


class Remote:
    """Target `file.py:name` in a child process. A context manager: it ends the process and deletes its files."""

    def __init__(self, file: Path, name: str, limits: Limits | None = None) -> None:
        self.file, self.name, self.limits = file.resolve(), name, limits or Limits()
        self.folder = Path(tempfile.mkdtemp(prefix="peasy-doctor-"))
        self.until = time.monotonic() + self.limits.seconds
        self.number = 0
        self._start()

    def _start(self) -> None:
        child_in, request_pipe = os.pipe()
        response_pipe, child_out = os.pipe()
        environment = {name: value for name, value in os.environ.items() if name in KEPT}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        options = {"file": str(self.file), "name": self.name, "folder": str(self.folder), "limits": asdict(self.limits)}
        self.said = open(self.folder / "output.txt", "wb")  # noqa: SIM115 (closed in __exit__)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "peasy.proof.doctor.child", str(child_in), str(child_out), json.dumps(options)],
            stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said, env=environment, cwd=self.file.parent,
            pass_fds=(child_in, child_out), start_new_session=True,
        )  # fmt: skip
        os.close(child_in)
        os.close(child_out)
        self.questions, self.answers, self.rest = request_pipe, response_pipe, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.said.close()
        for pipe in (self.questions, self.answers):
            os.close(pipe)
        shutil.rmtree(self.folder, ignore_errors=True)

    def describe(self) -> Description:
        """Run the file and return the target's description; errors name the line in the file."""
        response = self._ask({"do": "describe"})
        if "missing" in response:
            names = response["there"]
            hint = did_you_mean(self.name, names) or f"It has: {', '.join(names) or 'no functions or classes'}."
            raise NotFound(f'{self.file.name} has no "{self.name}".', hint=hint)
        if "fault" in response:
            raise fault_error(self.file.name, _fault(response["fault"]))
        return _description(response)

    def make(self, kwargs: Mapping[str, Any], seed: int = 0) -> tuple[Description, dict[str, np.ndarray]] | Fault:
        """Instantiate the class in the child process."""
        response = self._ask(
            {"do": "make", "kwargs": {name: _written(value) for name, value in kwargs.items()}, "seed": seed}
        )
        if "fault" in response:
            return _fault(response["fault"])
        return _description(response["description"]), self._arrays(response)

    def call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, library: str = "torch", still: bool = False
    ) -> Answer:
        """Call the target in the child process."""
        arrays: dict[str, np.ndarray] = {}
        request = {
            "do": "call", "args": [_written(value, arrays) for value in args], "library": library, "still": still,
            "kwargs": {name: _written(value, arrays) for name, value in kwargs.items()},
        }  # fmt: skip
        response = self._ask(request, arrays)
        if "fault" in response:
            return Answer(fault=_fault(response["fault"]))
        by_number = self._arrays(response)
        by_path = {tuple(path): by_number[str(number)] for number, path in enumerate(response["paths"])}
        return Answer(response["call"], by_path, {tuple(path): kind for path, kind in response["objects"]})

    def _ask(self, question: dict[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
        self.number += 1
        if arrays:
            question["file"] = f"in-{self.number}.safetensors"
            save_file(
                {name: np.ascontiguousarray(array) for name, array in arrays.items()}, self.folder / question["file"]
            )
        try:
            os.write(self.questions, json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            raise self._gone() from None
        return json.loads(self._line())

    def _line(self) -> bytes:
        while b"\n" not in self.rest:
            remaining = self.until - time.monotonic()
            if remaining <= 0 or not select.select([self.answers], [], [], remaining)[0]:
                raise InvalidInput(
                    f"{self.file.name} was stopped after the time limit of {self.limits.seconds:g} s.",
                    hint="An endless loop, or work at import? Put such work under if __name__ == '__main__':",
                )
            chunk = os.read(self.answers, 1 << 20)
            if not chunk:
                raise self._gone()
            self.rest += chunk
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def _gone(self) -> PeasyError:
        code = self.process.wait()
        if code == -signal.SIGXCPU:
            return InvalidInput(f"{self.file.name} was stopped after the CPU time limit of {self.limits.processor} s.")
        output = (self.folder / "output.txt").read_text(encoding="utf-8", errors="replace").strip()[-500:]
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return InvalidInput(f"{self.file.name} {how} during the examination.", hint=output or None)

    def _arrays(self, told: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if not told.get("file"):
            return {}
        path = self.folder / Path(told["file"]).name
        try:
            return load_file(path)
        finally:
            path.unlink(missing_ok=True)


def fault_error(file: str, fault: Fault) -> InvalidInput:
    """Return a fault as an error that names the line in the user's file."""
    where = f"{file}, line {fault.line}" if fault.line else file
    return InvalidInput(f"{where}: {fault.error}", hint=fault.code or None)


def _written(value: Any, arrays: dict[str, np.ndarray] | None = None) -> dict[str, Any]:
    if isinstance(value, np.ndarray):
        assert arrays is not None, "only calls take arrays"
        name = str(len(arrays))
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Earlier):
        return {"call": value.call, "path": list(value.path)}
    return {"named": dict(value.values)} if isinstance(value, Named) else {"plain": value}


def _description(told: Mapping[str, Any]) -> Description:
    parameters = tuple(Parameter(**parameter) for parameter in told["parameters"])
    source = Source(**told["source"])
    return Description(told["name"], told["kind"], parameters, told["told"], source, told["library"], told["numbers"])


def _fault(told: Mapping[str, Any]) -> Fault:
    return Fault(told["error"], told["line"], told["code"])
