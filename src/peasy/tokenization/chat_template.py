"""Chat templates: renders messages to the prompt text, in a sandbox."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from peasy.errors import InvalidInput
from peasy.tokenization.tokenizer import Tokenizer

MAX_OPERATIONS, MAX_CPU_SECONDS, MAX_MEMORY, MAX_CHARS = 300_000, 5, 512 << 20, 1_000_000
"""Limits of a template: operations, CPU seconds, bytes of memory, characters of output.

Operations end a template that loops after the same work on any machine; a conversation takes about ten a message.
"""

_WALL_CLOCK_FACTOR = 12
"""Wall-clock timeout as a multiple of the CPU time limit, for busy machines."""

_TEMPLATE_TOKENS = ("bos", "eos", "pad", "unk")

ChatMessage = Mapping[str, str]
"""Chat message: {"role": "user", "content": "Hello"}."""


def apply_chat_template(
    tokenizer: Tokenizer,
    messages: Sequence[ChatMessage],
    *,
    add_generation_prompt: bool = True,
    max_cpu_seconds: float = MAX_CPU_SECONDS,
) -> str:
    """Render messages with the tokenizer's chat template; `add_generation_prompt` opens the assistant's turn.

    The template runs in a sandboxed process with limits on time, memory and size.
    """
    template = tokenizer.chat_template
    if template is None:
        raise InvalidInput(
            "This model has no chat template.",
            hint="It was not trained for chat. Generate from a plain prompt instead.",
        )
    if len(template) > MAX_CHARS:
        raise InvalidInput(f"The chat template has {len(template):,} characters.", hint=f"The limit is {MAX_CHARS:,}.")
    special = vars(tokenizer.special_tokens)
    tokens = {role: "" if (id := special[role]) is None else tokenizer.token(id) or "" for role in _TEMPLATE_TOKENS}
    request = {
        "template": template,
        "values": {
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
            **{f"{role}_token": token for role, token in tokens.items()},
        },
        "max_operations": MAX_OPERATIONS,
        "max_memory": MAX_MEMORY,
        "max_cpu_seconds": max(int(max_cpu_seconds), 1),
        "max_chars": MAX_CHARS,
    }
    command = [sys.executable, "-I", str(Path(__file__).with_name("sandbox.py"))]
    timeout = _WALL_CLOCK_FACTOR * max_cpu_seconds
    try:
        done = subprocess.run(
            command, input=json.dumps(request).encode(), capture_output=True, timeout=timeout, check=False
        )
        result = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        result = {"error": f"it takes more than {timeout:g} s"}
    except ValueError:
        result = {"error": "it takes too much time or memory"}
    if "error" in result:
        raise InvalidInput(
            f"The chat template cannot be used: {result['error']}.",
            hint="It came with the model, as chat_template in tokenizer_config.json.",
        )
    return str(result["text"])
