"""The process in which a person's file runs: sets its own limits, runs the file, answers questions until nobody asks.

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
    """Read questions from one pipe, write answers into the other."""
    questions, answers, asked = os.fdopen(int(sys.argv[1]), "rb"), int(sys.argv[2]), json.loads(sys.argv[3])
    limit(asked["limits"])
    server = Server(Path(asked["file"]), asked["name"], Path(asked["folder"]))
    for line in questions:
        os.write(answers, json.dumps(server.answer(json.loads(line))).encode() + b"\n")


def limit(limits: dict[str, Any]) -> None:
    """No more memory, processor time or disk than that, from here on and for every child."""
    try:
        import resource
    except ModuleNotFoundError:  # a system without such limits still has the clock
        return
    wanted = ((resource.RLIMIT_AS, limits["memory"]), (resource.RLIMIT_CPU, limits["processor"]),
              (resource.RLIMIT_FSIZE, limits["file"]), (resource.RLIMIT_CORE, 0))  # fmt: skip
    for kind, most in wanted:
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, hard if kind == resource.RLIMIT_CPU else most))


class Server:
    """Answers each question with plain data; arrays go into a file of their own."""

    def __init__(self, file: Path, name: str, folder: Path) -> None:
        self.file, self.name, self.folder, self.number = file, name, folder, 0
        self.subject: Subject | None = None

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """One answer, whatever happens."""
        self.number += 1
        if question["do"] == "describe":
            return self._describe()
        assert self.subject is not None, "describe comes first"
        if question["do"] == "make":
            made = self.subject.make(
                {name: _read(each, {}) for name, each in question["kwargs"].items()}, question["seed"]
            )
            if isinstance(made, Fault):
                return {"fault": asdict(made)}
            return {"description": asdict(made[0]), "file": self._keep(made[1])}
        arrays = self._load(question.get("file"))
        args = [_read(each, arrays) for each in question["args"]]
        kwargs = {name: _read(each, arrays) for name, each in question["kwargs"].items()}
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
            there = [
                name for name, each in vars(module).items()
                if not name.startswith("_") and kind_of(each) and getattr(each, "__module__", "") == module.__name__
            ]  # fmt: skip
            return {"missing": self.name, "there": there}
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
    said = f"{type(error).__name__}: {str(error)[:300]}".removesuffix(": ")
    return Fault(said, frames[-1].lineno, frames[-1].line or "") if frames else Fault(said)


if __name__ == "__main__":
    main()
