"""Encoder process of one tokenizer; `isolated_encoder.py` runs it. It imports nothing of peasy.

One request per line comes on stdin, with the CPU seconds and bytes that it may take: first the tokenizer.json, then
texts. Each response is a line of JSON with the number of tokens of each text, then ids and offsets as 32-bit integers.
"""

import array
import contextlib
import json
import os
import signal
import sys
from typing import Any, BinaryIO


def set_limits(cpu_seconds: float, max_bytes: int) -> None:
    """Let the kernel end this process when it has used so much more time or memory; 0 seconds: no limit."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(ImportError, AttributeError, ValueError, OSError):
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)  # counts all threads; SIGPROF ends a process
        import resource

        with open("/proc/self/statm", encoding="ascii") as statm:
            now = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (now + max_bytes if cpu_seconds else hard, hard))


def encode(tokenizer: Any, request: dict[str, object]) -> list[bytes]:
    """Return the tokens of the texts of a request, in parts."""
    encode = tokenizer.encode_batch if request["offsets"] else tokenizer.encode_batch_fast
    encodings = encode(request["texts"], add_special_tokens=request["add_special_tokens"])
    ids = [array.array("I", encoding.ids).tobytes() for encoding in encodings]
    offsets = [
        array.array("I", [index for span in encoding.offsets for index in span]).tobytes()
        for encoding in (encodings if request["offsets"] else ())
    ]
    return [json.dumps({"counts": [len(part) // 4 for part in ids]}).encode() + b"\n", *ids, *offsets]


def main(requests: BinaryIO, responses: BinaryIO) -> None:
    """Build the tokenizer, then encode texts until stdin is closed."""
    import tokenizers

    tokenizer = None
    for request in map(json.loads, requests):
        set_limits(request["cpu_seconds"], request["max_bytes"])
        try:
            if tokenizer is None:
                tokenizer, response = tokenizers.Tokenizer.from_str(request["tokenizer"]), [b'{"counts": []}\n']
            else:
                response = encode(tokenizer, request)
        except BaseException as error:  # a panic of the Rust library is no Exception
            message = " ".join(str(error).split())[:200] or type(error).__name__
            response = [json.dumps({"error": message}).encode() + b"\n"]
        finally:
            set_limits(0, 0)
        responses.writelines(response)
        responses.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
