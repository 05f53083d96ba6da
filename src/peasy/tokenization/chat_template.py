"""Chat templates: renders messages to the prompt text, in a sandbox."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from peasy.errors import InvalidInput
from peasy.tokenization.tokenizer import Tokenizer

MAX_OPERATIONS, MAX_CPU_SECONDS, MAX_MEMORY, MAX_CHARS = 100_000, 0.1, 512 << 20, 1_000_000
"""Limits of a template: operations (and one a character of the messages), CPU seconds, bytes, characters of output.

Operations end a template that loops after the same work on any machine; a conversation takes about ten a message.
CPU time ends single operations that take long: short, so that it is no second of a busy machine either.
"""

_MAX_TEMPLATE_CHARS = 65_536
"""Characters of a template, three times the longest published ones: compiling it takes 4 microseconds each."""

_WALL_CLOCK_SECONDS = 60.0
"""Wall-clock timeout, for busy machines and systems without a limit of CPU time."""

_TEMPLATE_TOKENS = ("bos", "eos", "pad", "unk")

ChatMessage = Mapping[str, str]
"""Chat message: {"role": "user", "content": "Hello"}."""


DEFAULT_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message.role | capitalize + ': ' + message.content }}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""Template of a model that is trained on conversations from the start."""

_MAX_RENDERED = 64
"""Conversations that one sandbox process renders."""


def apply_chat_template(
    tokenizer: Tokenizer, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True
) -> str:
    """Render messages with the tokenizer's chat template; `add_generation_prompt` opens the assistant's turn.

    The template runs in a sandboxed process with limits on time, memory and size.
    """
    return _render(tokenizer, [(messages, add_generation_prompt)])[0]


def encode_conversations(
    tokenizer: Tokenizer, conversations: Sequence[Sequence[ChatMessage]]
) -> list[tuple[list[int], list[int]]]:
    """Encode whole conversations; return for each the ids, and 1 for each id that belongs to an answer, else 0.

    An answer is what the template writes between the opened turn of the assistant and the next turn, with the token
    that ends it, without the spaces after that.
    """
    chats: list[tuple[Sequence[ChatMessage], bool]] = []
    for conversation in conversations:
        turns = [turn for turn, message in enumerate(conversation) if message["role"] == "assistant"]
        chats += [(conversation[: turn + ends], not ends) for turn in turns for ends in (0, 1)]
        chats.append((conversation, False))
    chunks = [chats[start : start + _MAX_RENDERED] for start in range(0, len(chats), _MAX_RENDERED)]
    texts = iter([text for chunk in chunks for text in _render(tokenizer, chunk)])
    encoded = []
    for conversation in conversations:
        num_answers = sum(message["role"] == "assistant" for message in conversation)
        spans = [(next(texts), next(texts).rstrip()) for _ in range(num_answers)]
        encoded.append(_encode_answers(tokenizer, next(texts), spans))
    return encoded


def _encode_answers(tokenizer: Tokenizer, text: str, spans: list[tuple[str, str]]) -> tuple[list[int], list[int]]:
    """Encode a conversation; `spans` are the texts before each answer and up to its end."""
    if not all(until.startswith(before) and text.startswith(until) for before, until in spans):
        hint = "Give conversations with one answer each, or a template that only appends."
        raise InvalidInput("The chat template changes earlier messages, so answers cannot be found.", hint=hint)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    answers = [int(any(len(before) <= at < len(until) for before, until in spans)) for at, _ in encoding.offsets]
    return list(encoding.ids), answers


def _render(tokenizer: Tokenizer, chats: Sequence[tuple[Sequence[ChatMessage], bool]]) -> list[str]:
    """Render conversations, each with whether the assistant's turn is opened after it, in one sandboxed process."""
    template = tokenizer.chat_template
    if template is None:
        message = "This model has no chat template."
        raise InvalidInput(message, hint="It was not trained for chat. Generate from a plain prompt instead.")
    if len(template) > _MAX_TEMPLATE_CHARS:
        message, hint = f"The chat template has {len(template):,} characters.", f"The limit is {_MAX_TEMPLATE_CHARS:,}."
        raise InvalidInput(message, hint=hint)
    special = vars(tokenizer.special_tokens)
    tokens = {role: "" if (id := special[role]) is None else tokenizer.token(id) or "" for role in _TEMPLATE_TOKENS}
    request = {
        "template": template,
        "values": {"tools": None, "documents": None, **{f"{role}_token": token for role, token in tokens.items()}},
        "chats": [
            {"messages": [dict(message) for message in messages], "add_generation_prompt": opened}
            for messages, opened in chats
        ],
        "max_operations": MAX_OPERATIONS,
        "max_memory": MAX_MEMORY,
        "max_cpu_seconds": MAX_CPU_SECONDS,
        "max_chars": MAX_CHARS,
    }
    command = [sys.executable, "-I", str(Path(__file__).with_name("sandbox.py"))]
    data = json.dumps(request).encode()
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=_WALL_CLOCK_SECONDS, check=False)
        result = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        result = {"error": f"it takes more than {_WALL_CLOCK_SECONDS:g} s"}
    except ValueError:
        result = {"error": "it takes too much time or memory"}
    if "error" in result:
        message = f"The chat template cannot be used: {result['error']}."
        raise InvalidInput(message, hint="It came with the model, as chat_template in tokenizer_config.json.")
    return [str(text) for text in result["texts"]]
