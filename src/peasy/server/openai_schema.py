"""Pydantic models of the OpenAI-compatible requests; unknown fields are rejected."""

import random
from typing import Annotated, Literal

from pydantic import Field

from peasy.errors import InvalidInput
from peasy.generation.sampling_params import LongPrompt, SamplingParams
from peasy.server.responses import Name, Strict, Text

_TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIds = Annotated[list[_TokenId], Field(min_length=1, max_length=100_000)]
_BatchSize = Field(min_length=1, max_length=64)
Prompt = Text | TokenIds | Annotated[list[Text], _BatchSize] | Annotated[list[TokenIds], _BatchSize]
_StopString = Annotated[str, Field(min_length=1, max_length=200)]

MAX_CHOICES = 128
"""Choices of one request: prompts times n."""


class AttentionTopKBody(Strict):
    """Attention to return with every token: layers, heads (default all), and top keys per head."""

    layers: Annotated[list[_TokenId], Field(min_length=1, max_length=1000)] | None = None
    heads: Annotated[list[_TokenId], Field(min_length=1, max_length=1000)] | None = None
    keys: int = Field(8, ge=1, le=256)


class StreamOptions(Strict):
    """OpenAI's stream_options."""

    include_usage: bool = False


_SAMPLING_FIELDS = {
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
}  # fmt: skip


class SamplingBody(Strict):
    """Fields that completions and chat completions share: sampling and stopping."""

    model: Name
    temperature: float | None = Field(1.0, ge=0, le=2)
    top_p: float | None = Field(1.0, ge=0, le=1)
    n: int | None = Field(1, ge=1, le=16)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: _StopString | Annotated[list[_StopString], Field(max_length=16)] | None = None
    presence_penalty: float | None = Field(0.0, ge=-2, le=2)
    frequency_penalty: float | None = Field(0.0, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(None, max_length=1024)
    seed: int | None = None
    user: Annotated[str, Field(max_length=1000)] | None = None
    top_k: int | None = Field(None, ge=1, le=2**31, description="Sample only from the k most likely tokens.")
    min_p: float | None = Field(None, ge=0, le=1, description="Minimum probability, relative to the likeliest token.")
    repetition_penalty: float | None = Field(None, gt=0, le=100, description="Divides the logits of seen tokens.")
    long: LongPrompt | None = Field("refuse", description="What to do with a prompt longer than the context.")
    attention: AttentionTopKBody | None = Field(None, description="Return the top attention weights of each token.")

    def sampling_params(self, max_tokens: int, logprobs: int | None) -> SamplingParams:
        """Return the sampling parameters; a field that is null has its default."""
        given = self.model_dump(include=_SAMPLING_FIELDS, exclude_none=True)
        seed = random.getrandbits(31) if self.seed is None else self.seed % 2**63
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        options = {"temperature": 1.0} | given | {"seed": seed, "stop": stop, "logit_bias": self._parse_logit_bias()}
        return SamplingParams(max_tokens, logprobs=logprobs, **options)

    def _parse_logit_bias(self) -> dict[int, float]:
        """Return logit_bias with integer keys (JSON has only strings). As in OpenAI's API, -100 bans a token."""
        try:
            biases = {int(id): bias for id, bias in (self.logit_bias or {}).items()}
        except ValueError:
            raise InvalidInput("logit_bias: keys must be token ids.", hint='For example {"50256": -100}.') from None
        return {id: float("-inf") if bias == -100 else bias for id, bias in biases.items()}

    @property
    def include_usage(self) -> bool:
        """True if the stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(SamplingBody):
    """Body of /v1/completions: one or more prompts, as text or token ids."""

    prompt: Prompt
    max_tokens: int | None = Field(16, ge=1, le=1_000_000)
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = False
    best_of: int | None = Field(None, ge=1, le=16)
    suffix: None = None
    add_special_tokens: bool | None = Field(True, description="Add the special tokens that the model expects.")

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts as a list."""
        if isinstance(self.prompt, str) or isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)


class ContentPart(Strict):
    """Content part of a message; only text is supported."""

    type: Literal["text"]
    text: Text


class ChatMessage(Strict):
    """One chat message."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[ContentPart], Field(max_length=100)]
    name: Annotated[str, Field(max_length=200)] | None = None

    def for_template(self) -> dict[str, str]:
        """Return the message as a chat template expects it."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ResponseFormat(Strict):
    """OpenAI's response_format; only text is supported."""

    type: Literal["text"]


class ChatBody(SamplingBody):
    """Body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1000)]
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=1_000_000)
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None


class EmbeddingBody(Strict):
    """Body of /v1/embeddings: one or more texts."""

    model: Name
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: Annotated[str, Field(max_length=1000)] | None = None
    pooling: Literal["mean", "cls", "last"] | None = None
