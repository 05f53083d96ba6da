"""A patient in a process of its own, with limits of time and memory: what a person's file does stays in there.

Questions and answers are lines of JSON over a pipe, arrays go through safetensors files; nothing is pickled.
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
"""What of the environment the patient gets to see: no keys, no tokens."""


@dataclass(frozen=True)
class Limits:
    """What a patient may use: seconds by the clock (all in all), seconds of the processor, bytes of address space."""

    seconds: float = 60.0
    processor: int = 60
    memory: int = 8 << 30
    file: int = 64 << 20

    def says(self) -> str:
        """In words.

        >>> Limits().says()
        'at most 60 s and 8 GiB of memory'
        """
        return f"at most {self.seconds:g} s and {self.memory / (1 << 30):g} GiB of memory"


class Remote:
    """The patient of `file.py:name`. Use it as a context: the process and its files are gone afterwards."""

    def __init__(self, file: Path, name: str, limits: Limits | None = None) -> None:
        self.file, self.name, self.limits = file.resolve(), name, limits or Limits()
        self.folder = Path(tempfile.mkdtemp(prefix="peasy-doctor-"))
        self.until = time.monotonic() + self.limits.seconds
        self.number = 0
        self._start()

    def _start(self) -> None:
        theirs, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        environment = {name: value for name, value in os.environ.items() if name in KEPT}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        asked = {"file": str(self.file), "name": self.name, "folder": str(self.folder), "limits": asdict(self.limits)}
        self.said = open(self.folder / "said.txt", "wb")  # noqa: SIM115 (closed with the patient)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "peasy.proof.doctor.child", str(theirs), str(theirs_out), json.dumps(asked)],
            stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said, env=environment, cwd=self.file.parent,
            pass_fds=(theirs, theirs_out), start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.close(theirs_out)
        self.questions, self.answers, self.rest = ours_in, ours_out, b""

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
        """What it is; the file runs here, and what goes wrong in it is told with its line."""
        told = self._ask({"do": "describe"})
        if "missing" in told:
            there = told["there"]
            hint = did_you_mean(self.name, there) or f"It has: {', '.join(there) or 'no functions or classes'}."
            raise NotFound(f'{self.file.name} has no "{self.name}".', hint=hint)
        if "fault" in told:
            raise fault_error(self.file.name, _fault(told["fault"]))
        return _description(told)

    def make(self, kwargs: Mapping[str, Any], seed: int = 0) -> tuple[Description, dict[str, np.ndarray]] | Fault:
        """Make the module of a class in there."""
        told = self._ask(
            {"do": "make", "kwargs": {name: _written(each) for name, each in kwargs.items()}, "seed": seed}
        )
        if "fault" in told:
            return _fault(told["fault"])
        return _description(told["description"]), self._arrays(told)

    def call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, library: str = "torch", still: bool = False
    ) -> Answer:
        """Call it in there."""
        arrays: dict[str, np.ndarray] = {}
        question = {
            "do": "call", "args": [_written(each, arrays) for each in args], "library": library, "still": still,
            "kwargs": {name: _written(each, arrays) for name, each in kwargs.items()},
        }  # fmt: skip
        told = self._ask(question, arrays)
        if "fault" in told:
            return Answer(fault=_fault(told["fault"]))
        held = self._arrays(told)
        found = {tuple(path): held[str(number)] for number, path in enumerate(told["paths"])}
        return Answer(told["call"], found, {tuple(path): kind for path, kind in told["objects"]})

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
            left = self.until - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise InvalidInput(
                    f"{self.file.name} was stopped after {self.limits.seconds:g} s, its limit of time.",
                    hint="Does it loop for ever, or do its work at import? Put that under if __name__ == '__main__':",
                )
            piece = os.read(self.answers, 1 << 20)
            if not piece:
                raise self._gone()
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def _gone(self) -> PeasyError:
        code = self.process.wait()
        if code == -signal.SIGXCPU:
            return InvalidInput(
                f"{self.file.name} was stopped after {self.limits.processor} s of processor time, its limit."
            )
        said = (self.folder / "said.txt").read_text(encoding="utf-8", errors="replace").strip()[-500:]
        how = f"ended by signal {-code}" if code < 0 else f"left with exit code {code}"
        return InvalidInput(f"{self.file.name} {how} while it was examined.", hint=said or None)

    def _arrays(self, told: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if not told.get("file"):
            return {}
        path = self.folder / Path(told["file"]).name
        try:
            return load_file(path)
        finally:
            path.unlink(missing_ok=True)


def fault_error(file: str, fault: Fault) -> InvalidInput:
    """A fault as an error for people, with the line of their file."""
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
    parameters = tuple(Parameter(**each) for each in told["parameters"])
    source = Source(**told["source"])
    return Description(told["name"], told["kind"], parameters, told["told"], source, told["library"], told["numbers"])


def _fault(told: Mapping[str, Any]) -> Fault:
    return Fault(told["error"], told["line"], told["code"])
