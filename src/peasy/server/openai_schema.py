"""Pydantic models of the OpenAI-compatible requests.

Fields that change nothing in a response are accepted and named in a note; unsupported and unknown ones are rejected.
"""

import random
from typing import Annotated, Literal

from pydantic import Field, model_validator

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


_UNSUPPORTED_FIELDS = {
    "tools": "calls no tools", "tool_choice": "calls no tools",
    "functions": "calls no functions", "function_call": "calls no functions",
    "json_schema": "does not constrain its output", "guided_json": "does not constrain its output",
    "guided_regex": "does not constrain its output", "guided_choice": "does not constrain its output",
    "guided_grammar": "does not constrain its output", "grammar": "does not constrain its output",
    "structured_outputs": "does not constrain its output", "audio": "writes only text",
    "modalities": "writes only text", "prediction": "takes no predicted output",
    "web_search_options": "never uses the network", "reasoning_effort": "has no reasoning models",
}  # fmt: skip
"""Fields of OpenAI's API and of other servers that would change the output, with what peasy does instead."""

_Note = Annotated[str, Field(max_length=1000)]
_IGNORED = "Accepted and ignored."


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
    user: _Note | None = Field(None, description=_IGNORED)
    metadata: dict[_Note, _Note] | None = Field(None, max_length=64, description=_IGNORED)
    store: bool | None = Field(None, description=_IGNORED)
    service_tier: _Note | None = Field(None, description=_IGNORED)
    safety_identifier: _Note | None = Field(None, description=_IGNORED)
    prompt_cache_key: _Note | None = Field(None, description=_IGNORED)
    parallel_tool_calls: bool | None = Field(None, description=_IGNORED)
    ignore_eos: bool | None = Field(None, description=_IGNORED)
    top_k: int | None = Field(None, ge=1, le=2**31, description="Sample only from the k most likely tokens.")
    min_p: float | None = Field(None, ge=0, le=1, description="Minimum probability, relative to the likeliest token.")
    repetition_penalty: float | None = Field(None, ge=0.01, le=100, description="Divides the logits of seen tokens.")
    long: LongPrompt | None = Field("refuse", description="What to do with a prompt longer than the context.")
    attention: AttentionTopKBody | None = Field(None, description="Return the top attention weights of each token.")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, value: object) -> object:
        """Refuse by name what would change the output; empty fields are left out."""
        if not isinstance(value, dict):
            return value
        for name in sorted(_UNSUPPORTED_FIELDS.keys() & value.keys()):
            if value[name] not in (None, False, [], {}, "none", "auto", ["text"]):
                raise ValueError(f"{name} is not supported: peasy {_UNSUPPORTED_FIELDS[name]}. Leave it out")
        response_format = value.get("response_format")
        if isinstance(response_format, dict) and str(response_format.get("type")).startswith("json"):
            reason = "peasy does not constrain its output. Leave it out"
            raise ValueError(f"response_format of JSON is not supported: {reason}")
        return {name: item for name, item in value.items() if name not in _UNSUPPORTED_FIELDS}

    @property
    def ignored_fields(self) -> list[str]:
        """Names of the fields that were sent and have no effect."""
        fields = type(self).model_fields
        return [name for name, field in fields.items() if field.description == _IGNORED and getattr(self, name)]

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
    max_tokens: int | None = Field(16, ge=0, le=1_000_000)
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
