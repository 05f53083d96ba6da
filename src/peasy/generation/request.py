"""Generation request, its events (token, end) and its errors."""

import math
from dataclasses import dataclass, field
from typing import Literal

from peasy.errors import InvalidInput, PeasyError, ResourceUnavailable
from peasy.generation.attention_topk import AttentionQuery, HeadTopK
from peasy.generation.sampling import SampledToken
from peasy.generation.sampling_params import SamplingParams
from peasy.nn.config import check_minimums

FinishReason = Literal["eos", "stop", "length", "cancelled", "timeout", "slow_client", "error"]
"""Finish reason: eos token, stop string, token limit; or client cancelled, timeout, client too slow, error."""


@dataclass(frozen=True)
class Request:
    """Generation request: one prompt as token ids, `n` choices; choice i uses seed + i.

    `source`: input of an encoder-decoder model; its prompt may be empty. `timeout`: seconds from submission, queueing
    included. `attention_query`: which attention weights to report with every token.

    >>> Request((1, 2, 3), SamplingParams(max_tokens=4)).n
    1
    """

    prompt: tuple[int, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    source: tuple[int, ...] | None = None
    n: int = 1
    timeout: float | None = None
    attention_query: AttentionQuery | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", tuple(self.prompt))
        object.__setattr__(self, "source", None if self.source is None else tuple(self.source))
        check_minimums(self, n=1)
        if self.timeout is not None and not 0 < self.timeout < math.inf:
            raise InvalidInput(f"timeout is {self.timeout}.", hint="Give a number of seconds above 0.")


@dataclass(frozen=True)
class Token:
    """Token event of a choice; `text` is what it completes (partial characters and stop strings are held back)."""

    choice: int
    index: int
    sampled: SampledToken
    text: str = ""
    attention: tuple[HeadTopK, ...] = ()


@dataclass(frozen=True)
class Ended:
    """Final event of a choice: finish reason, remaining text, token count."""

    choice: int
    reason: FinishReason
    num_tokens: int
    text: str = ""
    error: PeasyError | None = None


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
