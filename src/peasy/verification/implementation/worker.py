"""Worker process of the sandbox: sets its resource limits, imports the user's file, and serves requests.

Started by `remote`; never imported by the rest of peasy.
"""

import importlib.util
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from peasy.verification.implementation.array_file import load_file, save_file
from peasy.verification.implementation.target import (
    CallResult,
    LocalTarget,
    NamespaceArgument,
    ResultReference,
    TargetFault,
    target_kind,
    to_fault,
)


def main() -> None:
    """Read requests from one pipe, write responses to the other, until the first is closed."""
    requests, responses, options = os.fdopen(int(sys.argv[1]), "rb"), int(sys.argv[2]), json.loads(sys.argv[3])
    _set_limits(options["limits"])
    server = _WorkerServer(Path(options["file"]), options["name"], Path(options["folder"]))
    for line in requests:
        os.write(responses, json.dumps(server.handle(json.loads(line))).encode() + b"\n")


def _set_limits(limits: dict[str, Any]) -> None:
    """Set the limits on memory, CPU time and file size, for this process and its children."""
    if sys.platform == "win32":  # without such limits the parent still has its timeout
        return
    import resource

    values = ((resource.RLIMIT_AS, limits["memory_bytes"]), (resource.RLIMIT_CPU, limits["cpu_seconds"]),
              (resource.RLIMIT_FSIZE, limits["file_bytes"]), (resource.RLIMIT_CORE, 0))  # fmt: skip
    for kind, value in values:
        hard = resource.getrlimit(kind)[1]
        soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (soft, hard if kind == resource.RLIMIT_CPU else soft))


class _WorkerServer:
    """Handles requests; responses are plain data, arrays go into a separate file."""

    def __init__(self, file: Path, name: str, folder: Path) -> None:
        self.file, self.name, self.folder, self.num_requests = file, name, folder, 0
        self.target: LocalTarget | None = None

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Handle one request; errors of the target are part of the response."""
        self.num_requests += 1
        if request["method"] == "describe":
            return self._describe()
        assert self.target is not None, "describe comes first"
        if request["method"] == "instantiate":
            made = self.target.instantiate(
                {name: _decode_argument(value, {}) for name, value in request["kwargs"].items()}, request["seed"]
            )
            if isinstance(made, TargetFault):
                return {"fault": asdict(made)}
            return {"description": asdict(made[0]), "file": self._save_arrays(made[1])}
        arrays = self._load_arrays(request.get("file"))
        args = [_decode_argument(value, arrays) for value in request["args"]]
        kwargs = {name: _decode_argument(value, arrays) for name, value in request["kwargs"].items()}
        return self._encode_result(
            self.target.call(args, kwargs, library=request["library"], disable_dropout=request["disable_dropout"])
        )

    def _describe(self) -> dict[str, Any]:
        try:
            module = self._import_file()
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return {"fault": asdict(to_fault(error, str(self.file)))}
        target: Any = module
        for part in self.name.split("."):
            target = getattr(target, part, None)
        if target is None:
            own = {n: v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
            names = [name for name, value in own.items() if not name.startswith("_") and target_kind(value)]
            return {"missing": self.name, "available": names}
        self.target = LocalTarget(target, self.name, str(self.file))
        try:
            return asdict(self.target.describe())
        except Exception as error:
            return {"fault": {"error": str(error), "line": None, "code": ""}}

    def _import_file(self) -> ModuleType:
        sys.path.insert(0, str(self.file.parent))
        spec = importlib.util.spec_from_file_location(self.file.stem, self.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.file.name} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.file.stem] = module
        spec.loader.exec_module(module)
        return module

    def _encode_result(self, result: CallResult) -> dict[str, Any]:
        if result.fault is not None:
            return {"fault": asdict(result.fault)}
        paths = list(result.arrays)
        file = self._save_arrays({str(number): result.arrays[path] for number, path in enumerate(paths)})
        return {"call_index": result.call_index, "paths": paths, "objects": list(result.objects.items()), "file": file}

    def _save_arrays(self, arrays: dict[str, np.ndarray]) -> str:
        if not arrays:
            return ""
        name = f"out-{self.num_requests}.arrays"
        save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, self.folder / name)
        return name

    def _load_arrays(self, name: str | None) -> dict[str, np.ndarray]:
        if not name:
            return {}
        arrays = load_file(self.folder / name)
        (self.folder / name).unlink()
        return arrays


def _decode_argument(encoded: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    if "array" in encoded:
        return arrays[encoded["array"]]
    if "result_of" in encoded:
        return ResultReference(encoded["result_of"], tuple(encoded["path"]))
    return NamespaceArgument(encoded["namespace"]) if "namespace" in encoded else encoded["value"]


if __name__ == "__main__":
    main()
