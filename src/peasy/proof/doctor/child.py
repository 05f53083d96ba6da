"""Worker process of the sandbox: sets its resource limits, imports the user's file, and serves requests.

Started by `remote`; never imported by the rest of peasy.
"""

import importlib.util
import json
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peasy.proof.doctor.subject import Answer, Earlier, Fault, Named, Subject, kind_of


def main() -> None:
    """Read requests from one pipe, write responses to the other, until the first is closed."""
    requests, responses, options = os.fdopen(int(sys.argv[1]), "rb"), int(sys.argv[2]), json.loads(sys.argv[3])
    limit(options["limits"])
    server = Server(Path(options["file"]), options["name"], Path(options["folder"]))
    for line in requests:
        os.write(responses, json.dumps(server.answer(json.loads(line))).encode() + b"\n")


def limit(limits: dict[str, Any]) -> None:
    """Set the limits on memory, CPU time and file size, for this process and its children."""
    try:
        import resource
    except ModuleNotFoundError:  # without such limits the parent still has its timeout
        return
    values = ((resource.RLIMIT_AS, limits["memory"]), (resource.RLIMIT_CPU, limits["processor"]),
              (resource.RLIMIT_FSIZE, limits["file"]), (resource.RLIMIT_CORE, 0))  # fmt: skip
    for kind, value in values:
        hard = resource.getrlimit(kind)[1]
        soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (soft, hard if kind == resource.RLIMIT_CPU else soft))


class Server:
    """Handles requests; responses are plain data, arrays go into a separate file."""

    def __init__(self, file: Path, name: str, folder: Path) -> None:
        self.file, self.name, self.folder, self.number = file, name, folder, 0
        self.subject: Subject | None = None

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Handle one request; errors of the target are part of the response."""
        self.number += 1
        if question["do"] == "describe":
            return self._describe()
        assert self.subject is not None, "describe comes first"
        if question["do"] == "make":
            made = self.subject.make(
                {name: _read(value, {}) for name, value in question["kwargs"].items()}, question["seed"]
            )
            if isinstance(made, Fault):
                return {"fault": asdict(made)}
            return {"description": asdict(made[0]), "file": self._keep(made[1])}
        arrays = self._load(question.get("file"))
        args = [_read(value, arrays) for value in question["args"]]
        kwargs = {name: _read(value, arrays) for name, value in question["kwargs"].items()}
        return self._told(self.subject.call(args, kwargs, library=question["library"], still=question["still"]))

    def _describe(self) -> dict[str, Any]:
        try:
            module = self._run()
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return {"fault": asdict(_fault(error, str(self.file)))}
        thing: Any = module
        for part in self.name.split("."):
            thing = getattr(thing, part, None)
        if thing is None:
            names = [
                name for name, value in vars(module).items()
                if not name.startswith("_") and kind_of(value) and getattr(value, "__module__", "") == module.__name__
            ]  # fmt: skip
            return {"missing": self.name, "there": names}
        self.subject = Subject(thing, self.name, str(self.file))
        try:
            return asdict(self.subject.describe())
        except Exception as error:
            return {"fault": {"error": str(error), "line": None, "code": ""}}

    def _run(self) -> Any:
        sys.path.insert(0, str(self.file.parent))
        spec = importlib.util.spec_from_file_location(self.file.stem, self.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.file.name} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.file.stem] = module
        spec.loader.exec_module(module)
        return module

    def _told(self, answer: Answer) -> dict[str, Any]:
        if answer.fault is not None:
            return {"fault": asdict(answer.fault)}
        paths = list(answer.arrays)
        file = self._keep({str(number): answer.arrays[path] for number, path in enumerate(paths)})
        objects = [(list(path), kind) for path, kind in answer.objects.items()]
        return {"call": answer.call, "paths": [list(path) for path in paths], "objects": objects, "file": file}

    def _keep(self, arrays: dict[str, Any]) -> str:
        import numpy as np
        from safetensors.numpy import save_file

        if not arrays:
            return ""
        name = f"out-{self.number}.safetensors"
        save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, self.folder / name)
        return name

    def _load(self, name: str | None) -> dict[str, Any]:
        from safetensors.numpy import load_file

        if not name:
            return {}
        arrays = load_file(self.folder / name)
        (self.folder / name).unlink()
        return arrays


def _read(told: dict[str, Any], arrays: dict[str, Any]) -> Any:
    if "array" in told:
        return arrays[told["array"]]
    if "call" in told:
        return Earlier(told["call"], tuple(told["path"]))
    return Named(told["named"]) if "named" in told else told["plain"]


def _fault(error: BaseException, file: str) -> Fault:
    if isinstance(error, SyntaxError) and error.filename == file:
        return Fault(f"{type(error).__name__}: {error.msg}", error.lineno, (error.text or "").strip())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    message = f"{type(error).__name__}: {str(error)[:300]}".removesuffix(": ")
    return Fault(message, frames[-1].lineno, frames[-1].line or "") if frames else Fault(message)


if __name__ == "__main__":
    main()
