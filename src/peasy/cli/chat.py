"""`peasy chat`: conversation with a model that has a chat template."""

import json
import sys
from collections.abc import Iterator

from peasy.cli.command import STDIN, CommandOutput, Flags, TextSource
from peasy.cli.derive import Call, derive
from peasy.cli.generate import random_seed
from peasy.commands import chat as commands


@derive(commands.chat, hide=("logprobs", "logit_bias"), options=commands.ChatSampling)
def chat(
    call: Call[commands.ChatSession],
    model: str,
    message: TextSource = None,
    *,
    temperature: float = 0.7,
    top_p: float = 0.95,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Chat with a model whose checkpoint has a chat template.

    For example:

        peasy chat ./my-chat-model
        peasy chat ./my-chat-model "What is attention?"
        peasy chat ./my-chat-model --system "Answer in one sentence." --temperature 0
        echo "What is attention?" | peasy chat ./my-chat-model

    Each line is a message. Ctrl-C stops an answer, Ctrl-D ends the conversation. The chat template runs in a separate,
    sandboxed process with limits on time and memory.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        message: A single message; without it, each line typed or piped is one.
        temperature: Sampling temperature; 0 is greedy decoding.
        top_p: Nucleus sampling: sample from the most likely tokens with this total probability.
    """
    call.arguments.setdefault("seed", random_seed(temperature))
    conversation, interrupted = call(model, temperature=temperature, top_p=top_p), False
    for question in [message] if message not in (None, STDIN) else _read_messages(flags):
        interrupted = _stream_answer(conversation, question or "", flags)
        if interrupted and not sys.stdin.isatty():
            break
    if temperature > 0 and not flags.quiet:
        print(f"seed {conversation.sampling.seed}", file=sys.stderr)
    return CommandOutput(conversation, already_printed=not flags.out, exit_code=130 if interrupted else 0)


def _read_messages(flags: Flags) -> Iterator[str]:
    """Yield lines of stdin, with an input prompt on a terminal."""
    live = sys.stdin.isatty() and not flags.quiet
    while True:
        if live:
            print("› ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _stream_answer(conversation: commands.ChatSession, message: str, flags: Flags) -> bool:
    """Stream one answer; return True if it was interrupted."""
    pieces = conversation.send(message)
    try:
        for piece in pieces:
            if flags.json:
                print(json.dumps({"event": "piece", "text": piece}, ensure_ascii=False), flush=True)
            else:
                print(piece, end="", flush=True)
    except KeyboardInterrupt:
        pieces.close()
        return True
    finally:
        if not flags.json:
            print(flush=True)
    return False
