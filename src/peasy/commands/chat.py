"""`chat`: a conversation with a model that has a chat template."""

from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Unpack

from annotated_types import Ge

from peasy.checkpoint.hub import Confirm
from peasy.commands.generate import pack_weights
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import JsonDict, Result
from peasy.errors import InvalidInput
from peasy.generation.sampling_params import SamplingOptions, SamplingParams, WeightFormat
from peasy.tokenization.chat_template import ChatMessage, apply_chat_template
from peasy.views.document import Document, Heading, Paragraph


class ChatSampling(SamplingParams):
    """Sampling parameters with the defaults of `chat`."""

    max_tokens: Annotated[int, Ge(1)] = 256
    """Maximum number of tokens of an answer."""


class ChatSession(Result):
    """Chat session: `send` sends a message and streams the reply; `messages` holds the conversation."""

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        system: str | None = None,
        weights: str = "auto",
        **sampling: Unpack[SamplingOptions],
    ) -> None:
        loaded.require_chat_template()
        self.loaded = loaded
        self.sampling = ChatSampling(**sampling)
        self.model, self.weights_label = pack_weights(loaded, weights)
        self.messages: list[ChatMessage] = [] if system is None else [{"role": "system", "content": system}]
        self.dropped_turns = 0

    def send(self, message: str) -> Generator[str, None, None]:
        """Send a user message and stream the reply; closing the generator keeps the part received so far."""
        from peasy.generation.decode import decode
        from peasy.generation.request import Ended, Token

        self.messages.append({"role": "user", "content": message})
        try:
            ids = self._prompt_ids()
        except InvalidInput:
            self.messages.pop()
            raise
        tokenizer, reply = self.loaded.output_tokenizer(), ""
        events = decode(self.model, [ids], [self.sampling], tokenizer=tokenizer)
        try:
            for event in events:
                if isinstance(event, Ended) and event.error is not None:
                    raise event.error
                if isinstance(event, Token) and event.sampled.id == tokenizer.special_tokens.eos:
                    break
                if piece := getattr(event, "text", ""):
                    reply += piece
                    yield piece
        finally:
            events.close()  # type: ignore[attr-defined]  # it is a generator
            self.messages.append({"role": "assistant", "content": reply})

    def _prompt_ids(self) -> list[int]:
        """Return the prompt ids; if they do not fit the context, drop the oldest question and answer first."""
        context = self.loaded.max_seq_len
        while True:
            ids = self.loaded.encode_chat(self.messages)
            oldest = [index for index, message in enumerate(self.messages[:-1]) if message["role"] != "system"][:2]
            if context is None or len(ids) + self.sampling.max_tokens <= context + 1 or not oldest:
                return ids
            self.dropped_turns += 1
            self.messages = [message for index, message in enumerate(self.messages) if index not in oldest]

    def render_prompt(self) -> str:
        """Return the conversation rendered by the chat template, as the model reads it."""
        return apply_chat_template(self.loaded.require_tokenizer(), self.messages)

    def document(self) -> Document:
        """The messages with their roles."""
        seed = f"seed {self.sampling.seed}" if self.sampling.temperature else "greedy decoding"
        parts = [part for one in self.messages for part in (Heading(one["role"]), Paragraph(one["content"]))]
        note = Paragraph(f"{seed} · {self.weights_label}", "note")
        return Document(f"Conversation with {self.loaded.name}", (*parts, note))

    def data(self) -> JsonDict:
        facts = {"model": self.loaded.name, "messages": [dict(message) for message in self.messages]}
        return facts | {"dropped_turns": self.dropped_turns}


def chat(
    model: str | Path | LoadedModel,
    *,
    system: str | None = None,
    weights: WeightFormat = "auto",
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
    **sampling: Unpack[SamplingOptions],
) -> ChatSession:
    """Start a chat session: `for piece in chat(model).send("Hello"): ...`; `sampling` as in `SamplingParams`.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        system: System prompt.
        weights: Weight format for inference; float32 is exact, int8 is smaller and faster.

    >>> chat("no/such-model", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    loaded = load(model, device=device, offline=offline, confirm=confirm)
    return ChatSession(loaded, system=system, weights=weights, **sampling)
