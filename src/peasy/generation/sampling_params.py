"""Sampling and beam search parameters, declared once, with bounds and explanations; needs no torch.

CLI flags, HTTP bodies and Python keywords (`**sampling: Unpack[SamplingOptions]`) are derived from `SamplingParams`.
"""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal, TypedDict

from annotated_types import Ge, Le

from peasy.errors import InvalidInput
from peasy.parameters import TypedSettings

LongPrompt = Literal["refuse", "cut", "extend"]
"""What to do with a text longer than the context: raise an error, keep its last tokens, or go beyond the context."""

WeightFormat = Literal["auto", "float32", "bfloat16", "int8"]
"""Format of the weights for decoding; auto: bfloat16 if the CPU supports it, else float32."""

_MAX_LOGIT_BIAS = 10_000
"""Largest number that may be added to a logit: a float32 holds the sum."""


class SamplingParams(TypedSettings):
    """Sampling parameters and stopping conditions: greedy decoding unless `temperature` is above 0.

    >>> SamplingParams(temperature=0.8, top_p=0.9).top_k is None
    True
    >>> SamplingParams(top_p=1.5)
    Traceback (most recent call last):
    peasy.errors.InvalidInput: top_p is 1.5.
    """

    max_tokens: Annotated[int, Ge(1)] = 20
    """Maximum number of tokens to generate."""
    temperature: Annotated[float, Ge(0), Le(100)] = 0.0
    """Sampling temperature; 0 is greedy decoding."""
    seed: int = 0
    """Seed of the random numbers; several texts of one prompt use seed, seed + 1, ..."""
    top_k: Annotated[int, Ge(1)] | None = None
    """Sample only from the k most likely tokens."""
    top_p: Annotated[float, Ge(0), Le(1)] = 1.0
    """Nucleus sampling: sample from the most likely tokens with this total probability."""
    min_p: Annotated[float, Ge(0), Le(1)] = 0.0
    """Minimum probability, relative to the most likely token."""
    repetition_penalty: Annotated[float, Ge(0.01), Le(100)] = 1.0
    """Above 1, tokens that occurred before become less likely: it divides their logits."""
    presence_penalty: Annotated[float, Ge(-100), Le(100)] = 0.0
    """Subtracted from the logit of every token generated before."""
    frequency_penalty: Annotated[float, Ge(-100), Le(100)] = 0.0
    """Subtracted from the logit of a token for each time it was generated."""
    stop: tuple[str, ...] = ()
    """Stop string; generation ends before it. Can be repeated."""
    logprobs: Annotated[int, Ge(0)] | None = None
    """Number of top log-probabilities to report per token; 0 = only the sampled token's."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Numbers added to the logits of token ids; minus infinity forbids one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "stop", tuple(self.stop))
        if not all(self.stop):
            raise InvalidInput("A stop string is empty.", hint="Give at least one character.")
        if any(not (abs(bias) <= _MAX_LOGIT_BIAS or bias == -math.inf) for bias in self.logit_bias.values()):
            hint = f"{-_MAX_LOGIT_BIAS:,} to {_MAX_LOGIT_BIAS:,} are allowed, and minus infinity: it forbids an id."
            raise InvalidInput("A logit bias is too large, or not a number.", hint=hint)


class SamplingOptions(TypedDict, total=False):
    """Keyword arguments of `SamplingParams`, for the signatures of functions that pass them on."""

    max_tokens: Annotated[int, Ge(1)]
    temperature: Annotated[float, Ge(0), Le(100)]
    seed: int
    top_k: Annotated[int, Ge(1)] | None
    top_p: Annotated[float, Ge(0), Le(1)]
    min_p: Annotated[float, Ge(0), Le(1)]
    repetition_penalty: Annotated[float, Ge(0.01), Le(100)]
    presence_penalty: Annotated[float, Ge(-100), Le(100)]
    frequency_penalty: Annotated[float, Ge(-100), Le(100)]
    stop: tuple[str, ...]
    logprobs: Annotated[int, Ge(0)] | None
    logit_bias: Mapping[int, float]


class BeamSearchParams(TypedSettings):
    """Beam search parameters. A hypothesis scores its log-probability / length ** `length_penalty`."""

    num_beams: Annotated[int, Ge(1)] = 4
    """Number of beams; 1 is greedy decoding."""
    max_tokens: Annotated[int, Ge(1)] = 64
    """Maximum number of tokens to generate."""
    length_penalty: Annotated[float, Ge(-10), Le(10)] = 1.0
    """Length penalty; above 0 favours long sequences, 0 is the plain sum of log-probabilities."""
    n: Annotated[int, Ge(1)] = 1
    """Number of hypotheses to return, best first."""
    early_stopping: Literal["always", "heuristic", "never"] = "heuristic"
    """As in transformers: "always" stops at the first `num_beams` finished hypotheses; "heuristic" when no running
    beam would score better if it ended now; "never" only when no running beam can become better at all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n > self.num_beams:
            message = f"n is {self.n}, but there are only {self.num_beams} beams."
            raise InvalidInput(message, hint="Use at least n beams.")
        if self.early_stopping not in ("always", "heuristic", "never"):
            raise InvalidInput(f"early_stopping is {self.early_stopping!r}.", hint="Choose always, heuristic or never.")
