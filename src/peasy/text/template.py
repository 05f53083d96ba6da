"""Chat templates: renders messages to the prompt text, in a sandbox."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peasy.errors import InvalidInput
from peasy.text.tokenizer import Tokenizer

SECONDS, MEMORY, MOST = 5, 512 << 20, 1_000_000
"""Limits of a template: CPU seconds, bytes of memory, characters of output."""

PATIENCE = 12
"""Wall-clock timeout as a multiple of the CPU time limit, for busy machines."""

Message = Mapping[str, str]
"""Chat message: {"role": "user", "content": "Hello"}."""


def render_chat(
    tokenizer: Tokenizer, messages: Sequence[Message], *, answer: bool = True, seconds: float = SECONDS
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
    if len(template) > MOST:
        raise InvalidInput(f"The chat template has {len(template):,} characters.", hint=f"The limit is {MOST:,}.")
    values: dict[str, Any] = {"messages": [dict(message) for message in messages], "add_generation_prompt": answer}
    values |= _special(tokenizer)
    request = {"template": template, "values": values, "memory": MEMORY, "seconds": max(int(seconds), 1), "most": MOST}
    return _ask(json.dumps(request).encode(), seconds)


def _special(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the special tokens as strings, for templates."""
    roles = {"bos_token": tokenizer.special.bos, "eos_token": tokenizer.special.eos, "pad_token": tokenizer.special.pad}
    names = {role: "" if id is None else tokenizer.token(id) or "" for role, id in roles.items()}
    unknown = tokenizer.special.unk
    return names | {"unk_token": "" if unknown is None else tokenizer.token(unknown) or ""}


def _ask(question: bytes, seconds: float) -> str:
    command = [sys.executable, "-I", str(Path(__file__).with_name("sandbox.py"))]
    try:
        done = subprocess.run(command, input=question, capture_output=True, timeout=PATIENCE * seconds, check=False)
        result = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        result = {"error": f"it takes more than {PATIENCE * seconds:g} s"}
    except ValueError:
        result = {"error": "it takes too much time or memory"}
    if "error" in result:
        raise InvalidInput(
            f"The chat template cannot be used: {result['error']}.",
            hint="It came with the model, as chat_template in tokenizer_config.json.",
        )
    return str(result["text"])
