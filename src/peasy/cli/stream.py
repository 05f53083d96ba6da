"""Streaming output of generation: text on stdout, or one line of JSON per event."""

import json
import sys
from typing import TYPE_CHECKING, Any

from peasy.cli.command import Flags
from peasy.render.json import to_plain

if TYPE_CHECKING:
    from peasy.tokenization import Tokenizer


class TextStream:
    """Stream one text to stdout. On a terminal the prompt is printed first, on stderr, so that a pipe gets only the
    generated text."""

    def __init__(self, prompt: str, flags: Flags) -> None:
        self.disabled = flags.json or flags.out is not None
        self.prompt = prompt if sys.stderr.isatty() and sys.stdout.isatty() and not flags.quiet else ""
        self.started = False

    def write(self, event: Any) -> None:
        """Print the text of an event, if it has any."""
        text = getattr(event, "text", "")
        if self.disabled or not text:
            return
        if not self.started:
            self.started = True
            print(self.prompt, end="", file=sys.stderr, flush=True)
        print(text, end="", flush=True)

    def close(self) -> bool:
        """End the line; return True if anything was printed."""
        if self.started:
            print(flush=True)
        return self.started


def print_event(event: Any, tokenizer: "Tokenizer") -> None:
    """Print one line of JSON for a token or a finish event; forward-pass events are skipped."""
    from peasy.generation.request import Ended, Token

    if isinstance(event, Token):
        sampled = event.sampled
        line = {
            "event": "token", "index": event.choice, "position": event.index, "id": sampled.id,
            "piece": tokenizer.piece(sampled.id), "text": event.text, "logprob": sampled.logprob,
        }  # fmt: skip
    elif isinstance(event, Ended):
        error = None if event.error is None else event.error.message
        line = {
            "event": "finished", "index": event.choice, "finish_reason": event.reason, "text": event.text,
        }  # fmt: skip
        line |= {} if error is None else {"error": error}
    else:
        return
    print(json.dumps(to_plain(line), ensure_ascii=False, allow_nan=False), flush=True)
