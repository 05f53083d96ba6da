"""Generation request, its events (token, end) and its errors."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from annotated_types import Ge
from torch import Tensor

from peasy.errors import InvalidInput, PeasyError, ResourceUnavailable
from peasy.generation.sampling import SampledToken
from peasy.generation.sampling_params import BeamSearchParams, LongPrompt, SamplingParams
from peasy.nn.intervention import InterventionLike
from peasy.nn.module_path import LayerTopK
from peasy.parameters import BoundedSettings

FinishReason = Literal["eos", "stop", "length", "cancelled", "timeout", "slow_client", "error"]
"""Finish reason: eos token, stop string, token limit; or client cancelled, timeout, client too slow, error."""


class AttentionQuery(BoundedSettings):
    """Which attention to report with each token: layers and heads, and `top_k` keys per head (None = all)."""

    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    top_k: Annotated[int, Ge(1)] | None = 8


class DecodingStep(NamedTuple):
    """What one forward pass gave for one sequence: `logits` of the token after `ids`, attention of the last of them.

    `num_computed` tokens went through the model in this pass, `num_cached` came from the KV cache.
    """

    ids: tuple[int, ...]
    logits: Tensor
    attention: tuple[LayerTopK, ...]
    num_computed: int
    num_cached: int


class Request(BoundedSettings):
    """Generation request: one prompt as token ids, `n` choices; choice i uses seed + i.

    `source`: input of an encoder-decoder model; its prompt may be empty. `timeout`: seconds from submission, queueing
    included. `attention_query`: which attention weights to report with every token. `scores_prompt`: also report the
    log-probabilities of the prompt's own tokens, in the `prompt_logprobs` of the response. `generates` False computes
    the prompt and ends (`max_tokens: 0` of OpenAI's API). Strategies instead of plain
    sampling with a KV cache: `use_cache` False recomputes the whole sequence for each token, `max_draft_tokens` above 0
    is speculative decoding, `beam_search` searches. `observer` is called with each step, `intervention` changes it.

    >>> Request((1, 2, 3), SamplingParams(max_tokens=4)).n
    1
    """

    prompt: tuple[int, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    source: tuple[int, ...] | None = None
    n: Annotated[int, Ge(1)] = 1
    timeout: float | None = None
    attention_query: AttentionQuery | None = None
    scores_prompt: bool = False
    generates: bool = True
    long: LongPrompt = "refuse"
    use_cache: bool = True
    max_draft_tokens: Annotated[int, Ge(0)] = 0
    beam_search: BeamSearchParams | None = None
    observer: Callable[[DecodingStep], object] | None = None
    intervention: InterventionLike | None = None
    max_tokens: int = field(init=False)
    """Most tokens to generate."""
    num_sequences: int = field(init=False)
    """Number of sequences that run at the same time: choices or beams."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", tuple(self.prompt))
        object.__setattr__(self, "source", None if self.source is None else tuple(self.source))
        search = self.beam_search
        max_tokens = (self.sampling if search is None else search).max_tokens if self.generates else 0
        object.__setattr__(self, "max_tokens", max_tokens)
        object.__setattr__(self, "num_sequences", self.n if search is None else search.num_beams)
        super().__post_init__()
        if self.timeout is not None and not 0 < self.timeout < math.inf:
            raise InvalidInput(f"timeout is {self.timeout}.", hint="Give a number of seconds above 0.")
        if self.scores_prompt and (self.source is not None or self.beam_search is not None or not self.use_cache):
            hint = "Leave out echo, or logprobs."
            raise InvalidInput("Only the prompt of a decoder, with a cache, has log-probabilities.", hint=hint)
        if self.max_draft_tokens and not self.use_cache:
            hint = "Leave out speculative or use_cache=False (--no-cache)."
            raise InvalidInput("speculative needs the KV cache.", hint=hint)


@dataclass(frozen=True)
class Hypothesis:
    """Finished beam: token ids (eos included), length-normalised score, and sum of log-probabilities."""

    ids: tuple[int, ...]
    score: float
    logprob: float
    has_eos: bool


@dataclass(frozen=True)
class Token:
    """Token event of a choice; `text` is what it completes (partial characters and stop strings are held back)."""

    choice: int
    index: int
    sampled: SampledToken
    text: str = ""
    attention: tuple[LayerTopK, ...] = ()


@dataclass(frozen=True)
class Ended:
    """Final event of a choice: finish reason, token count, remaining text; hypotheses of a beam search, best first."""

    choice: int
    reason: FinishReason
    num_tokens: int
    text: str = ""
    error: PeasyError | None = None
    hypotheses: tuple[Hypothesis, ...] = ()


Event = Token | Ended


class Overloaded(ResourceUnavailable):
    """Error: the queue is full; retry after `retry_after` seconds."""

    code = "overloaded"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, hint=f"Try again in {math.ceil(retry_after)} s.")
        self.retry_after = retry_after


class InternalError(PeasyError):
    """Error: an unexpected exception ended this request; others were not affected."""

    code = "internal-error"


def as_user_error(error: Exception | None) -> PeasyError | None:
    """Strip traceback and context so that the failed pass's tensors can be freed."""
    if error is None:
        return None
    user_error = error if isinstance(error, PeasyError) else InternalError(f"{type(error).__name__}: {error}")
    user_error.__traceback__ = user_error.__context__ = user_error.__cause__ = None
    return user_error
