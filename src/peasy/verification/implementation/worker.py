"""Worker process: sets its limits, imports the user's code, examines it, and writes the diagnosis to a file.

Started by `child`; never imported by the rest of peasy.
"""

import contextlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from peasy.atomic import write_atomic
from peasy.config import JsonDict
from peasy.errors import PeasyError


def main() -> None:
    """Read a request (a JSON file), write the answer next to it, and wait to be ended with all descendants."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    _set_limits(request["limits"])
    _adopt_orphans()
    parent = os.dup(sys.stdin.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # code that asks its user gets no answer, at once
    answer = _answer(request)
    write_atomic(request["answer"], json.dumps(answer))
    os.read(parent, 1)  # the parent ends this process; as long as it lives, its descendants can be found


def _answer(request: JsonDict) -> dict[str, object]:
    from peasy.verification.implementation.call_text import failure
    from peasy.verification.implementation.loading import find_target, load_module

    file = Path(request["file"]) if request["file"] else None
    try:
        try:
            module, notes = load_module(file, request["module"], request["folder"])
            target = find_target(module, request["name"], file.name if file else request["module"])
        except PeasyError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            found = failure(error, "", str(file or ""))
            return {"import_error": asdict(found)}
        from peasy.verification.implementation.examine import examine

        with _only_cpu():
            diagnosis = examine(
                target, request["name"], file=str(file or module.__file__ or ""), call=request["call"],
                seed=request["seed"], namespace=vars(module), expected=request["expected"], notes=notes,
            )  # fmt: skip
        return {"diagnosis": asdict(diagnosis)}
    except PeasyError as error:
        return {"error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint}}


def _only_cpu() -> contextlib.AbstractContextManager[object]:
    if "torch" not in sys.modules:
        return contextlib.nullcontext()
    from peasy.verification.implementation.torch_trace import OnlyCPU

    return OnlyCPU()


def _set_limits(limits: JsonDict) -> None:
    """Set the limits on memory, CPU time, file size and processes, for this process and its children."""
    if sys.platform == "win32":  # without such limits the parent still has its timeout
        return
    import resource

    values = [(resource.RLIMIT_AS, limits["memory_bytes"]), (resource.RLIMIT_CPU, limits["cpu_seconds"]),
              (resource.RLIMIT_FSIZE, limits["file_bytes"]), (resource.RLIMIT_CORE, 0)]  # fmt: skip
    for kind, value in values:
        hard = resource.getrlimit(kind)[1]
        soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (soft, hard if kind == resource.RLIMIT_CPU else soft))


def _adopt_orphans() -> None:
    """On Linux, become the parent of descendants whose own parent has ended, so that they can be found and ended."""
    if sys.platform == "linux":
        import ctypes

        set_child_subreaper = 36
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


if __name__ == "__main__":
    main()
