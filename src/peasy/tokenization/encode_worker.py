"""Encoder process of one tokenizer; `isolated_encoder.py` runs it. It imports nothing of peasy.

First the tokenizer.json comes on stdin, then one request per line: texts, CPU seconds and bytes that they may take.
Each response is a line of JSON with the number of tokens of each text, then the ids and offsets as 32-bit integers.
"""

import array
import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import tokenizers


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


def respond(tokenizer: "tokenizers.Tokenizer", request: dict[str, Any]) -> list[bytes]:
    """Return the response to one request, in parts."""
    encode = tokenizer.encode_batch if request["offsets"] else tokenizer.encode_batch_fast
    set_limits(request["cpu_seconds"], request["max_bytes"])
    try:
        encodings = encode(request["texts"], add_special_tokens=request["add_special_tokens"])
        ids = [array.array("I", encoding.ids).tobytes() for encoding in encodings]
        offsets = [
            array.array("I", [index for span in encoding.offsets for index in span]).tobytes()
            for encoding in (encodings if request["offsets"] else ())
        ]
        return [json.dumps({"counts": [len(part) // 4 for part in ids]}).encode() + b"\n", *ids, *offsets]
    except BaseException as error:  # a panic of the Rust library is no Exception
        return [json.dumps({"error": " ".join(str(error).split())[:200] or type(error).__name__}).encode() + b"\n"]
    finally:
        set_limits(0, 0)


def main(requests: BinaryIO, responses: BinaryIO) -> None:
    """Build the tokenizer, then respond until stdin is closed."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(requests.readline().decode())
    for line in requests:
        responses.writelines(respond(tokenizer, json.loads(line)))
        responses.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
