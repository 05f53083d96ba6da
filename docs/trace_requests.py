"""Traces four requests and prints the files, functions and changes of package that each passes.

    python docs/trace_requests.py [generate | completions | look | train] [--calls] [--save]

A function counts once, when it is first called; a change of package is counted where the next such function is in
another package than the one before. Private functions, and functions inside others, count as part of their callers
(their number is printed beside).
Functions called while a module is imported or by the server's watchdog, lambdas, comprehensions and special methods
do not count.
`--save` stores the traces in docs/request_paths.json; `make docs` writes the section of docs/architecture.md from it:
they are taken on one machine, and another CPU may choose another kernel.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import peasy

SOURCE = Path(peasy.__file__).resolve().parent
REQUESTS = {
    "generate": 'peasy generate stories "The pizza" --max-tokens 4',
    "completions": 'POST /v1/completions {"model": "stories", "prompt": "The pizza", "max_tokens": 4}',
    "look": 'peasy look stories "The pizza came out of the oven" --query oven',
    "train": "one step of peasy train gpt --data stories",
}


@dataclass
class Trace:
    """Functions of peasy in the order of their first call."""

    calls: dict[tuple[str, str], None] = field(default_factory=dict)
    on: bool = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call: the profile function of Python."""
        code = frame.f_code
        if (
            not self.on
            or event != "call"
            or code.co_name.startswith("<")
            or not code.co_filename.startswith(str(SOURCE))
        ):
            return
        if not _is_beside(frame):
            self.calls.setdefault((str(Path(code.co_filename).relative_to(SOURCE)), code.co_qualname))

    @property
    def functions(self) -> list[tuple[str, str]]:
        """File and name of each public function."""
        return [(file, name) for file, name in self.calls if not _is_private(name)]

    @property
    def files(self) -> list[str]:
        """Files in the order in which they are reached."""
        return list(dict.fromkeys(file for file, _ in self.functions))

    @property
    def packages(self) -> list[str]:
        """Packages in order, one entry for each change."""
        return [package for package, _ in groupby(self.functions, key=lambda call: package_of(call[0]))]

    def summary(self) -> str:
        """Return the three counts."""
        private = sum(_is_private(name) and not name.split(".")[-1].startswith("__") for _, name in self.calls)
        functions = f"{len(self.functions)} functions (and {private} private ones)"
        return f"{len(self.files)} files, {functions}, {len(self.packages) - 1} changes of package"


def _is_private(name: str) -> bool:
    """Return True for a name with an underscore, also of its class, and for a function inside another one."""
    return "<locals>" in name or any(part.startswith("_") for part in name.split("."))


def package_of(file: str) -> str:
    """Return the package or top-level module of a file."""
    return file.split("/")[0].removesuffix(".py")


def _is_beside(frame: FrameType | None) -> bool:
    """Return True for a call that is no part of the request: of an import, or of the watchdog, once a second."""
    while frame is not None:
        code = frame.f_code
        if code.co_name in ("<module>", "_poll_watchdogs") and code.co_filename.startswith(str(SOURCE)):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """Record all calls in this thread and in the threads that it starts."""
    threading.setprofile(trace)
    sys.setprofile(trace)
    trace.on = True
    try:
        yield
    finally:
        trace.on = False
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def trace_cli(*words: str) -> Trace:
    """Trace one command line."""
    from peasy.cli import app

    trace = Trace()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), tracing(trace):
        status = app.run(list(words))
    assert status == 0, f"peasy {' '.join(words)} ended with {status}"
    return trace


def trace_completions() -> Trace:
    """Trace the second request to a server, with the model loaded."""
    from fastapi.testclient import TestClient

    from peasy.server.app import build_app
    from peasy.server.model_registry import ModelRegistry

    trace, body = Trace(), {"model": "stories", "prompt": "The pizza", "max_tokens": 4, "temperature": 0}
    threading.setprofile(trace)  # the engine's thread starts with the first request
    registry = ModelRegistry(["stories"])
    with TestClient(build_app(registry, pages=False), base_url="http://localhost") as client:
        client.post("/v1/completions", json=body).raise_for_status()
        with tracing(trace):
            client.post("/v1/completions", json=body).raise_for_status()
    registry.close()
    return trace


def trace_train() -> Trace:
    """Trace one step of a training run, without validation, samples or saving."""
    from peasy.commands.train import train_events
    from peasy.training.event import TrainStep

    trace = Trace()
    with tempfile.TemporaryDirectory() as folder, tracing(trace):
        trace.on = False
        for event in train_events("gpt", "stories", preset="tiny", run=Path(folder) / "run", steps=40):
            if trace.on and isinstance(event, TrainStep):
                trace.on = False  # closing the run is not part of the step
                break
            trace.calls.clear()
            trace.on = isinstance(event, TrainStep)
    return trace


TRACERS: dict[str, Callable[[], Trace]] = {
    "generate": lambda: trace_cli("generate", "stories", "The pizza", "--max-tokens", "4"),
    "completions": trace_completions,
    "look": lambda: trace_cli("look", "stories", "The pizza came out of the oven", "--query", "oven"),
    "train": trace_train,
}


def save(traces: dict[str, Trace]) -> None:
    """Store the traces: the counts, and the functions of each package in the order in which they are reached."""
    stored = {}
    for name, trace in traces.items():
        visits = [
            [package, [f"{Path(file).stem}.{function}" for file, function in functions]]
            for package, functions in groupby(trace.functions, key=lambda call: package_of(call[0]))
        ]
        counts = {"files": len(trace.files), "functions": len(trace.functions), "changes": len(visits) - 1}
        stored[name] = {"request": REQUESTS[name], **counts, "visits": visits}
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    (Path(__file__).parent / "request_paths.json").write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    """Print the traces that the command line names, or all."""
    names = [word for word in sys.argv[1:] if not word.startswith("-")] or list(REQUESTS)
    traces = {name: TRACERS[name]() for name in names}
    for name, trace in traces.items():
        print(f"{name}: {trace.summary()}\n  {REQUESTS[name]}\n  {' → '.join(trace.packages)}")
        if "--calls" in sys.argv:
            print("\n".join(f"    {file}: {function}" for file, function in trace.functions))
    if "--save" in sys.argv:
        save(traces)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
