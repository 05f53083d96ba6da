"""Encoder of a foreign tokenizer in a process of its own, with a limit on time and memory for each request.

A tokenizer.json is a program: patterns that backtrack, replacements that multiply, vocabularies on which the algorithm
is cubic, tables on which the library panics. Whatever it does when it is built or run, the process is ended by the
kernel, and started again for the next request.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from peasy.errors import InvalidInput
from peasy.tokenization.tokenizer_validation import JsonDict

_CPU_SECONDS = 1.0
_CHARS_PER_CPU_SECOND = 100_000
"""Further CPU time for long texts: ten times slower than common tokenizers."""

_BUILD_SECONDS, _BYTES_PER_BUILD_SECOND, _MEMORY_PER_BYTE = 3.0, 2_000_000, 64
"""CPU time for a tokenizer.json, seven times that of Llama 3's, and memory for each of its bytes."""

_MAX_BYTES = 512 << 20
_BYTES_PER_CHAR = 400
_TOKENS_PER_CHAR, _TOKENS_PER_TEXT = 40, 128
"""Most tokens of a text: one character may be normalised to eighteen, of two bytes each."""

_WALL_CLOCK_FACTOR = 12
"""Wall-clock timeout as a multiple of the CPU time, for busy machines and systems without a limit of CPU time."""

_START_SECONDS = 120.0
"""Additional wall-clock time of the first request, in which the process starts."""

TokenSpans = tuple[list[int], list[tuple[int, int]]]
"""Ids of a text, and the characters of each (empty if they were not asked for)."""


class IsolatedEncoder:
    """Encoder that runs a tokenizer in a subprocess. `build` starts it, and raises if the tokenizer cannot be built.

    >>> from peasy.tokenization import train_tokenizer
    >>> tokenizer = train_tokenizer(["the cat sat"] * 9, "characters")
    >>> encoder = IsolatedEncoder(tokenizer._data)
    >>> encoder.encode(["sat"], add_special_tokens=True, offsets=False) == [(list(tokenizer.encode("sat").ids), [])]
    True
    """

    def __init__(self, data: JsonDict) -> None:
        self._data, self._owner = data, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str], *, add_special_tokens: bool, offsets: bool) -> list[TokenSpans]:
        """Return the tokens of each text, or raise if that takes too much time or memory."""
        num_chars = sum(map(len, texts))
        cpu_seconds = _CPU_SECONDS + num_chars / _CHARS_PER_CPU_SECOND
        request = {
            "texts": list(texts), "add_special_tokens": add_special_tokens, "offsets": offsets,
            "cpu_seconds": cpu_seconds, "max_bytes": _MAX_BYTES + _BYTES_PER_CHAR * num_chars,
        }  # fmt: skip
        max_tokens = _TOKENS_PER_CHAR * num_chars + _TOKENS_PER_TEXT * len(texts)
        with self._lock:
            process = self._process
            if process is None or self._owner != os.getpid() or process.poll() is not None:
                process = self.build()
            return self._ask(process, request, _WALL_CLOCK_FACTOR * cpu_seconds, max_tokens)

    def _ask(
        self, process: subprocess.Popen[bytes], request: JsonDict, wall_clock: float, max_tokens: int = 0
    ) -> list[TokenSpans]:
        """Send a request and return its response; a process that does not respond in time is ended."""
        timer = threading.Timer(wall_clock, process.kill)
        timer.start()
        try:
            message = json.dumps(request).encode() + b"\n"
            return _exchange(process, message, request.get("offsets", False), max_tokens)
        except InvalidInput:
            raise
        except BaseException as error:  # also Ctrl-C: its late response must not be read as that of another text
            self._process = None
            _end(process, os.getpid())
            if not isinstance(error, (OSError, EOFError, ValueError)):
                raise
            slow = sys.platform != "win32" and process.returncode in (-signal.SIGPROF, -signal.SIGKILL)
            limit = f"more than {request['cpu_seconds']:.1f} s" if slow else "too much memory"
            hint = "The tokenizer.json of this model is unusual or hostile. Try a shorter text, or another model."
            raise InvalidInput(f"The tokenizer took {limit}, and was stopped.", hint=hint) from None
        finally:
            timer.cancel()

    def build(self) -> subprocess.Popen[bytes]:
        """Start the process and build the tokenizer there; a fork of this process starts its own."""
        text = json.dumps(self._data)
        cpu_seconds = _BUILD_SECONDS + len(text) / _BYTES_PER_BUILD_SECOND
        request = {
            "tokenizer": text, "cpu_seconds": cpu_seconds, "max_bytes": _MAX_BYTES + _MEMORY_PER_BYTE * len(text),
        }  # fmt: skip
        command = [sys.executable, "-I", str(Path(__file__).with_name("encode_worker.py"))]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env=os.environ | {"MALLOC_ARENA_MAX": "1", "TOKENIZERS_PARALLELISM": "true"},
        )  # fmt: skip
        weakref.finalize(self, _end, process, os.getpid())
        self._ask(process, request, _START_SECONDS + _WALL_CLOCK_FACTOR * cpu_seconds)
        self._process, self._owner = process, os.getpid()
        return process


def _exchange(process: subprocess.Popen[bytes], message: bytes, offsets: bool, max_tokens: int) -> list[TokenSpans]:
    """Send a request and return its response."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(message)
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise EOFError
    response = json.loads(line)
    if "error" in response:
        raise InvalidInput(f"The tokenizer failed: {response['error'].rstrip('.')}.")
    counts: list[int] = response["counts"]
    if sum(counts) > max_tokens:
        raise EOFError
    ids = [_read_integers(process.stdout, count) for count in counts]
    spans = [_read_integers(process.stdout, 2 * count) for count in (counts if offsets else ())]
    pairs = [list(zip(span[::2], span[1::2], strict=True)) for span in spans]
    return list(zip(ids, pairs or [[] for _ in ids], strict=True))


def _read_integers(stream: IO[bytes], count: int) -> list[int]:
    data = stream.read(4 * count)
    if len(data) < 4 * count:
        raise EOFError
    return array("I", data).tolist()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Wait for a process that has ended, or end it; a fork leaves the process of its parent alone."""
    if owner != os.getpid():
        return
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
