"""Sandboxed target: a user's file runs in a child process with time and memory limits.

Requests and responses are lines of JSON over pipes, arrays through files (`array_file`); nothing is pickled.
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

from peasy.errors import InvalidInput, NotFound, PeasyError, did_you_mean
from peasy.verification.implementation.array_file import load_file, save_file
from peasy.verification.implementation.target import (
    Arg,
    CallResult,
    NamespaceArgument,
    ResultReference,
    SignatureParameter,
    SourceCode,
    TargetDescription,
    TargetFault,
)

_PASSED_ENV_VARS = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SYSTEMROOT",
)  # fmt: skip
"""Environment variables passed to the child process: no keys, no tokens."""


@dataclass(frozen=True)
class SandboxLimits:
    """Limits of the child process: total wall-clock seconds, CPU seconds, bytes of address space, bytes per file."""

    timeout: float = 60.0
    cpu_seconds: int = 60
    memory_bytes: int = 8 << 30
    file_bytes: int = 64 << 20

    def summary(self) -> str:
        """Return the limits as text.

        >>> SandboxLimits().summary()
        'at most 60 s and 8 GiB of memory'
        """
        return f"at most {self.timeout:g} s and {self.memory_bytes / (1 << 30):g} GiB of memory"


class SandboxedTarget:
    """Target `file.py:name` in a child process. A context manager: it ends the process and deletes its files."""

    def __init__(self, file: Path, name: str, limits: SandboxLimits | None = None) -> None:
        self.file, self.name, self.limits = file.resolve(), name, limits or SandboxLimits()
        self.folder = Path(tempfile.mkdtemp(prefix="peasy-implementation-"))
        self.deadline = time.monotonic() + self.limits.timeout
        self.num_requests = 0
        self._start()

    def _start(self) -> None:
        child_in, request_pipe = os.pipe()
        response_pipe, child_out = os.pipe()
        environment = {name: value for name, value in os.environ.items() if name in _PASSED_ENV_VARS}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        options = {"file": str(self.file), "name": self.name, "folder": str(self.folder), "limits": asdict(self.limits)}
        self.output_file = open(self.folder / "output.txt", "wb")  # noqa: SIM115 (closed in __exit__)
        module = "peasy.verification.implementation.worker"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(child_in), str(child_out), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=self.output_file,
            stderr=self.output_file,
            env=environment,
            cwd=self.file.parent,
            pass_fds=(child_in, child_out),
            start_new_session=True,
        )
        os.close(child_in)
        os.close(child_out)
        self.request_pipe, self.response_pipe, self.buffer = request_pipe, response_pipe, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self.process.kill()
            else:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.output_file.close()
        for pipe in (self.request_pipe, self.response_pipe):
            os.close(pipe)
        shutil.rmtree(self.folder, ignore_errors=True)

    def describe(self) -> TargetDescription:
        """Run the file and return the target's description; errors name the line in the file."""
        response = self._request({"method": "describe"})
        if "missing" in response:
            names = response["available"]
            hint = did_you_mean(self.name, names) or f"It has: {', '.join(names) or 'no functions or classes'}."
            raise NotFound(f'{self.file.name} has no "{self.name}".', hint=hint)
        if "fault" in response:
            fault = TargetFault(**response["fault"])
            where = f"{self.file.name}, line {fault.line}" if fault.line else self.file.name
            raise InvalidInput(f"{where}: {fault.error}", hint=fault.code or None)
        return _decode_description(response)

    def instantiate(
        self, kwargs: Mapping[str, Arg], seed: int = 0
    ) -> tuple[TargetDescription, dict[str, np.ndarray]] | TargetFault:
        """Instantiate the class in the child process."""
        encoded = {name: _encode_argument(value) for name, value in kwargs.items()}
        response = self._request({"method": "instantiate", "kwargs": encoded, "seed": seed})
        if "fault" in response:
            return TargetFault(**response["fault"])
        return _decode_description(response["description"]), self._load_arrays(response)

    def call(
        self,
        args: Sequence[Arg],
        kwargs: Mapping[str, Arg],
        *,
        library: str = "torch",
        disable_dropout: bool = False,
    ) -> CallResult:
        """Call the target in the child process."""
        arrays: dict[str, np.ndarray] = {}
        request = {
            "method": "call",
            "args": [_encode_argument(value, arrays) for value in args],
            "kwargs": {name: _encode_argument(value, arrays) for name, value in kwargs.items()},
            "library": library,
            "disable_dropout": disable_dropout,
        }
        response = self._request(request, arrays)
        if "fault" in response:
            return CallResult(fault=TargetFault(**response["fault"]))
        by_number = self._load_arrays(response)
        by_path = {tuple(path): by_number[str(number)] for number, path in enumerate(response["paths"])}
        return CallResult(response["call_index"], by_path, {tuple(path): kind for path, kind in response["objects"]})

    def _request(self, request: dict[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
        self.num_requests += 1
        if arrays:
            request["file"] = f"in-{self.num_requests}.arrays"
            contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            save_file(contiguous, self.folder / request["file"])
        try:
            os.write(self.request_pipe, json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            raise self._exit_error() from None
        response: dict[str, Any] = json.loads(self._read_line())
        return response

    def _read_line(self) -> bytes:
        while b"\n" not in self.buffer:
            remaining = self.deadline - time.monotonic()
            if remaining <= 0 or not select.select([self.response_pipe], [], [], remaining)[0]:
                raise InvalidInput(
                    f"{self.file.name} was stopped after the time limit of {self.limits.timeout:g} s.",
                    hint="An endless loop, or work at import? Put such work under if __name__ == '__main__':",
                )
            chunk = os.read(self.response_pipe, 1 << 20)
            if not chunk:
                raise self._exit_error()
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def _exit_error(self) -> PeasyError:
        code = self.process.wait()
        if sys.platform != "win32" and code == -signal.SIGXCPU:
            limit = f"the CPU time limit of {self.limits.cpu_seconds} s"
            return InvalidInput(f"{self.file.name} was stopped after {limit}.")
        output = (self.folder / "output.txt").read_text(encoding="utf-8", errors="replace").strip()[-500:]
        outcome = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return InvalidInput(f"{self.file.name} {outcome} during the examination.", hint=output or None)

    def _load_arrays(self, response: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if not response.get("file"):
            return {}
        path = self.folder / Path(response["file"]).name
        try:
            return load_file(path)
        finally:
            path.unlink(missing_ok=True)


def _encode_argument(value: Arg, arrays: dict[str, np.ndarray] | None = None) -> dict[str, object]:
    if isinstance(value, np.ndarray):
        assert arrays is not None, "only calls take arrays"
        name = str(len(arrays))
        arrays[name] = value
        return {"array": name}
    if isinstance(value, ResultReference):
        return {"result_of": value.call, "path": list(value.path)}
    return {"namespace": dict(value.values)} if isinstance(value, NamespaceArgument) else {"value": value}


def _decode_description(response: Mapping[str, Any]) -> TargetDescription:
    parameters = tuple(SignatureParameter(*parameter) for parameter in response["parameters"])
    return TargetDescription(**{**response, "parameters": parameters, "source": SourceCode(**response["source"])})
