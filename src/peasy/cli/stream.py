"""What a model writes, on the screen while it writes: pieces of text for people, lines of JSON for programs."""

import json
import sys
from typing import TYPE_CHECKING, Any

from peasy.cli.door import Flags
from peasy.render.json import plain

if TYPE_CHECKING:
    from peasy.text import Tokenizer


class Pieces:
    """One text on stdout as it grows. On a terminal its prompt stands before it, on stderr, so that a pipe gets only
    what was written."""

    def __init__(self, prompt: str, flags: Flags) -> None:
        self.off = flags.json or flags.out is not None
        self.prompt = prompt if sys.stderr.isatty() and sys.stdout.isatty() and not flags.quiet else ""
        self.began = False

    def say(self, event: Any) -> None:
        """Print the text of an event, if it has any."""
        text = getattr(event, "text", "")
        if self.off or not text:
            return
        if not self.began:
            self.began = True
            print(self.prompt, end="", file=sys.stderr, flush=True)
        print(text, end="", flush=True)

    def close(self) -> bool:
        """End the line; whether anything is on the screen."""
        if self.began:
            print(flush=True)
        return self.began


def say_event(event: Any, tokenizer: "Tokenizer") -> None:
    """One line of JSON for a token or an end; passes through the model are not told."""
    if hasattr(event, "chosen"):
        chosen = event.chosen
        told = {
            "event": "token", "text_number": event.choice, "place": event.place, "id": chosen.id,
            "piece": tokenizer.piece(chosen.id), "text": event.text, "logprob": chosen.logprob,
        }  # fmt: skip
    elif hasattr(event, "reason"):
        error = None if event.error is None else event.error.message
        told = {"event": "ended", "text_number": event.choice, "reason": event.reason, "text": event.text}
        told |= {} if error is None else {"error": error}
    else:
        return
    print(json.dumps(plain(told), ensure_ascii=False, allow_nan=False), flush=True)
