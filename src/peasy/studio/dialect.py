"""How the common clients ask: the requests of /v1, every field with its bounds, and nothing that is not known."""

import random
from typing import Annotated, Any, Literal

from pydantic import Field

from peasy.errors import InvalidInput
from peasy.studio.reply import Name, Strict, Text

Id = Annotated[int, Field(ge=0, lt=2**31)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=100_000)]
Several = Field(min_length=1, max_length=64)
Prompt = Text | Ids | Annotated[list[Text], Several] | Annotated[list[Ids], Several]
Stop = Annotated[str, Field(min_length=1, max_length=200)]

CHOICES = 128
"""Texts that one request may ask for: prompts times n."""


class Attention(Strict):
    """Which attention is told with every token: layers, heads (all unless named), and how many keys of each head."""

    layers: Annotated[list[Id], Field(min_length=1, max_length=1000)] | None = None
    heads: Annotated[list[Id], Field(min_length=1, max_length=1000)] | None = None
    keys: int = Field(8, ge=1, le=256)


class StreamOptions(Strict):
    """What a stream tells besides its text."""

    include_usage: bool = False


class Writing(Strict):
    """What completions and chats share: how tokens are chosen, and when it is enough."""

    model: Name
    temperature: float | None = Field(1.0, ge=0, le=2)
    top_p: float | None = Field(1.0, ge=0, le=1)
    n: int | None = Field(1, ge=1, le=16)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    presence_penalty: float | None = Field(0.0, ge=-2, le=2)
    frequency_penalty: float | None = Field(0.0, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(None, max_length=1024)
    seed: int | None = None
    user: Annotated[str, Field(max_length=1000)] | None = None
    top_k: int | None = Field(None, ge=1, le=2**31, description="Draw only from so many of the likeliest tokens.")
    min_p: float | None = Field(None, ge=0, le=1, description="Only tokens with this share of the best one's chance.")
    repetition_penalty: float | None = Field(None, gt=0, le=100, description="Divides the scores of seen tokens.")
    attention: Attention | None = Field(None, description="Tell where heads looked when they wrote each token.")

    def sampling(self, most: int, logprobs: int | None) -> dict[str, Any]:
        """The same in the words of the house."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        named = {"top_k": self.top_k, "min_p": self.min_p, "repetition_penalty": self.repetition_penalty}
        return {
            "max_tokens": most,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "seed": random.getrandbits(31) if self.seed is None else self.seed % 2**63,
            "presence_penalty": self.presence_penalty or 0.0,
            "frequency_penalty": self.frequency_penalty or 0.0,
            "stop": tuple(stop),
            "logprobs": logprobs,
            "logit_bias": self._bias(),
        } | {name: value for name, value in named.items() if value is not None}

    def _bias(self) -> dict[int, float]:
        """JSON has only text for keys. As elsewhere, -100 forbids a token."""
        try:
            found = {int(id): bias for id, bias in (self.logit_bias or {}).items()}
        except ValueError:
            raise InvalidInput("logit_bias: its keys are ids of tokens.", hint='For example {"50256": -100}.') from None
        return {id: float("-inf") if bias == -100 else bias for id, bias in found.items()}

    @property
    def usage_told(self) -> bool:
        """Does the stream end with how much was read and written?"""
        return self.stream_options is not None and self.stream_options.include_usage


class Completion(Writing):
    """A prompt, or several, to write on from: texts, or ids of tokens."""

    prompt: Prompt
    max_tokens: int | None = Field(16, ge=1, le=1_000_000)
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = False
    best_of: int | None = Field(None, ge=1, le=16)
    suffix: None = None

    def prompts(self) -> list[str | list[int]]:
        """Each by itself."""
        given: Any = self.prompt
        return given if isinstance(given, list) and not isinstance(given[0], int) else [given]


class Part(Strict):
    """A part of a message; only text is read."""

    type: Literal["text"]
    text: Text


class Message(Strict):
    """What somebody said."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[Part], Field(max_length=100)]
    name: Annotated[str, Field(max_length=200)] | None = None

    def plain(self) -> dict[str, str]:
        """The same as a template expects it."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ResponseFormat(Strict):
    """Only text is written."""

    type: Literal["text"]


class Chat(Writing):
    """A conversation, whose next turn is the model's."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=1000)]
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=1_000_000)
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None


class Embedding(Strict):
    """A text, or several, to turn into vectors."""

    model: Name
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: Annotated[str, Field(max_length=1000)] | None = None
    pooling: Literal["mean", "cls", "last"] | None = None
