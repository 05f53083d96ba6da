"""llama.cpp as a peer: its HTTP server, in the best build there is on this machine.

In this order: the program in LLAMA_SERVER, `llama-server` on the PATH, a native build of the source folder in
LLAMA_CPP_SOURCE (made once, if cmake and a compiler are there), and last the portable wheel `xllamacpp`, which does not
use all instructions of the CPU. Every report names the build.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BUILD_OPTIONS = ("-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF")


@cache
def native_server() -> str | None:
    """Return the path of a llama-server built for this machine, or None."""
    given = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    source = os.environ.get("LLAMA_CPP_SOURCE")
    if given or not source or not shutil.which("cmake"):
        return given
    folder = Path(source) / "build"
    program = folder / "bin" / "llama-server"
    if not program.exists():
        print("building llama.cpp for this machine ...", file=sys.stderr)
        subprocess.run(["cmake", "-S", source, "-B", folder, *BUILD_OPTIONS], check=True, stdout=sys.stderr)
        build = ["cmake", "--build", folder, "--parallel", str(os.cpu_count()), "--target", "llama-server"]
        subprocess.run(build, check=True, stdout=sys.stderr)
    return str(program)


def is_installed() -> bool:
    """Return True if there is any build."""
    return native_server() is not None or find_spec("xllamacpp") is not None


def build_name() -> str:
    """Name the build that is measured, for the first lines of a report."""
    program = native_server()
    if program is None:
        return (
            f"llama.cpp: portable wheel xllamacpp {version('xllamacpp')} (a native build may be faster: bench/llama.py)"
        )
    printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    lines = (printed.stdout + printed.stderr).splitlines()
    return "llama.cpp: native, " + ", ".join(line for line in lines if line.startswith(("version", "built")))


@contextlib.contextmanager
def serve(file: str | Path, parallel: int, threads: int) -> Iterator[int]:
    """Run llama.cpp's server in its own process; yield its port."""
    port, program = free_port(), native_server()
    options = ["--model", str(file), "--port", str(port), "--parallel", str(parallel), "--threads", str(threads)]
    options += ["--ctx-size", str(256 * parallel), "--no-webui", "--log-disable", "--no-cache-prompt", "--ignore-eos"]
    portable = [sys.executable, "-m", "bench.llama", str(file), str(port), str(parallel), str(threads)]
    with running_server(portable if program is None else [program, *options], port):
        yield port


def complete_all(port: int, prompts: list[list[int]], num_tokens: int) -> None:
    """Complete all prompts at once, greedily, each with exactly this many tokens."""
    options = {"n_predict": num_tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False}

    def complete(prompt: list[int]) -> int:
        body = json.dumps(options | {"prompt": prompt}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", body)
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request) as response:
            return int(json.load(response)["tokens_predicted"])

    with ThreadPoolExecutor(len(prompts)) as pool:
        counts = list(pool.map(complete, prompts))
    assert counts == [num_tokens] * len(prompts), counts


def free_port() -> int:
    with contextlib.closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextlib.contextmanager
def running_server(command: list[str], port: int) -> Iterator[int]:
    """Start a server and wait until it is healthy; stop it at the end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(6000):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as response:
                if response.status == 200:
                    break
            assert process.poll() is None, "the server ended"
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(300)


def _run_portable(file: str, port: int, parallel: int, threads: int) -> None:
    import xllamacpp

    settings: Any = xllamacpp.CommonParams()
    settings.model.path, settings.port = file, port
    settings.n_parallel, settings.n_ctx = parallel, 256 * parallel
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.cache_prompt, settings.verbosity, settings.sampling.ignore_eos = False, -1, True
    running = xllamacpp.Server(settings)  # serves until it is deleted
    assert running is not None
    time.sleep(10_000)


if __name__ == "__main__":
    _run_portable(sys.argv[1], *map(int, sys.argv[2:]))
