"""Chat templates: messages into the one text that a model was trained to go on from."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peasy.errors import InvalidInput
from peasy.text.tokenizer import Tokenizer

SECONDS, MEMORY, MOST = 5, 512 << 20, 1_000_000
"""What a template may take: so many seconds of the processor, bytes of memory, and characters of text."""

PATIENCE = 12
"""On a busy machine the clock may run so many times as fast as the processor's own time."""

Message = Mapping[str, str]
"""Who speaks and what: {"role": "user", "content": "Hello"}."""


def render_chat(
    tokenizer: Tokenizer, messages: Sequence[Message], *, answer: bool = True, seconds: float = SECONDS
) -> str:
    """The text of a conversation as the tokenizer's template writes it; `answer` opens the model's next turn.

    The template runs in a process of its own, sandboxed, with limits on time, memory and size.
    """
    template = tokenizer.chat_template
    if template is None:
        raise InvalidInput("This model has no chat template.", hint="It was not made to talk. Let it write on instead.")
    if len(template) > MOST:
        raise InvalidInput(f"The chat template has {len(template):,} characters.", hint=f"At most {MOST:,} are run.")
    values: dict[str, Any] = {"messages": [dict(each) for each in messages], "add_generation_prompt": answer}
    values |= _special(tokenizer)
    asked = {"template": template, "values": values, "memory": MEMORY, "seconds": max(int(seconds), 1), "most": MOST}
    return _ask(json.dumps(asked).encode(), seconds)


def _special(tokenizer: Tokenizer) -> dict[str, str]:
    """The names of special tokens, which templates write out."""
    roles = {"bos_token": tokenizer.special.bos, "eos_token": tokenizer.special.eos, "pad_token": tokenizer.special.pad}
    names = {role: "" if id is None else tokenizer.token(id) or "" for role, id in roles.items()}
    unknown = tokenizer.special.unk
    return names | {"unk_token": "" if unknown is None else tokenizer.token(unknown) or ""}


def _ask(question: bytes, seconds: float) -> str:
    command = [sys.executable, "-I", str(Path(__file__).with_name("sandbox.py"))]
    try:
        done = subprocess.run(command, input=question, capture_output=True, timeout=PATIENCE * seconds, check=False)
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        answer = {"error": f"it takes more than {PATIENCE * seconds:g} s"}
    except ValueError:
        answer = {"error": "it takes too much time or memory"}
    if "error" in answer:
        raise InvalidInput(
            f"The chat template cannot be used: {answer['error']}.",
            hint="It came with the model, as chat_template in tokenizer_config.json.",
        )
    return str(answer["text"])
