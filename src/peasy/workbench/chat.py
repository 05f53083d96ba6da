"""`chat`: a conversation with a model that has a template for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peasy.checkpoint.hub import Ask
from peasy.errors import InvalidInput
from peasy.text.template import Message, render_chat
from peasy.views.chat import chat_document
from peasy.views.document import Document
from peasy.workbench.generate import pack_weights
from peasy.workbench.load import LoadedModel, load
from peasy.workbench.result import Result


class Chat(Result):
    """A conversation: `say` asks and gives the answer piece by piece; `messages` hold all that was said."""

    def __init__(
        self, loaded: LoadedModel, *, system: str | None = None, weights: str = "auto", **sampling: Any
    ) -> None:
        from peasy.generation.sampling import Sampling

        if loaded.model.reads_source or loaded.need_tokenizer().chat_template is None:
            raise InvalidInput(
                f"{loaded.name} has no chat template: it was not made to talk.",
                hint=f'Let it write on instead: peasy generate {loaded.name} "..."',
            )
        self.loaded = loaded
        self.sampling = Sampling(**({"max_tokens": 256} | sampling))
        self.model, self.weights = pack_weights(loaded, weights)
        self.messages: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self.forgotten = 0

    def say(self, text: str) -> Iterator[str]:
        """Ask something; the answer comes piece by piece. What was answered when it is closed is kept."""
        from peasy.generation.decode import decode
        from peasy.generation.request import Ended, Token

        self.messages.append({"role": "user", "content": text})
        try:
            ids = self._ids()
        except InvalidInput:
            self.messages.pop()
            raise
        words, said = self.loaded.answers(), ""
        events = decode(self.model, [ids], [self.sampling], tokenizer=words)
        try:
            for event in events:
                if isinstance(event, Ended) and event.error is not None:
                    raise event.error
                if isinstance(event, Token) and event.chosen.id == words.special.eos:
                    break
                if piece := getattr(event, "text", ""):
                    said += piece
                    yield piece
        finally:
            events.close()  # type: ignore[attr-defined]  # it is a generator
            self.messages.append({"role": "assistant", "content": said})

    def _ids(self) -> list[int]:
        """The conversation as ids. What no longer fits is forgotten, the oldest question and answer first."""
        room = getattr(self.model.config, "context", None)
        while True:
            ids = list(self.loaded.need_tokenizer().encode(self.template(), special=False).ids)
            old = [place for place, each in enumerate(self.messages[:-1]) if each["role"] != "system"][:2]
            if room is None or len(ids) + self.sampling.max_tokens <= room + 1 or not old:
                return ids
            self.forgotten += 1
            self.messages = [each for place, each in enumerate(self.messages) if place not in old]

    def template(self) -> str:
        """The conversation so far as the model reads it."""
        return render_chat(self.loaded.need_tokenizer(), self.messages)

    def document(self) -> Document:
        """Who said what."""
        seed = f"seed {self.sampling.seed}" if self.sampling.draws else "the best token each time"
        return chat_document(self.loaded.name, self.messages, f"{seed} · {self.weights}")

    def data(self) -> dict[str, Any]:
        """The messages."""
        facts = {"model": self.loaded.name, "messages": [dict(each) for each in self.messages]}
        return facts | {"forgotten": self.forgotten}


def chat(
    model: str | Path | LoadedModel,
    *,
    system: str | None = None,
    device: str = "auto",
    offline: bool = False,
    ask: Ask | None = None,
    **how: Any,
) -> Chat:
    """Begin a conversation: `for piece in chat(model).say("Hello"): ...`. `how` are the settings of sampling.

    >>> chat("no/such-model", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    loaded = model if isinstance(model, LoadedModel) else load(model, device=device, offline=offline, ask=ask)
    return Chat(loaded, system=system, **how)
