"""Sampling parameters: temperature, filters, penalties and stopping conditions, declared once; needs no torch.

CLI flags, HTTP bodies and Python keywords (`**sampling: Unpack[SamplingOptions]`) are derived from `SamplingParams`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, TypedDict, get_args, get_type_hints

from annotated_types import Ge, Gt, Le

from peasy.errors import InvalidInput


@dataclass(frozen=True)
class SamplingParams:
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
    repetition_penalty: Annotated[float, Gt(0), Le(100)] = 1.0
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
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        check_bounds(self)
        if not all(isinstance(text, str) and text for text in self.stop):
            raise InvalidInput("A stop string is empty.", hint="Give at least one character.")
        if any(math.isnan(bias) or bias == math.inf for bias in self.logit_bias.values()):
            raise InvalidInput(
                "A logit bias is not a finite number.", hint="Minus infinity is allowed: it forbids an id."
            )

    @property
    def is_random(self) -> bool:
        """True if tokens are sampled at random, not greedily."""
        return self.temperature > 0

    @property
    def changes_logits(self) -> bool:
        """True if penalties or a bias change the logits."""
        penalties = (self.repetition_penalty - 1, self.presence_penalty, self.frequency_penalty)
        return any(penalties) or bool(self.logit_bias)


class SamplingOptions(TypedDict, total=False):
    """Keyword arguments of `SamplingParams`, for the signatures of functions that pass them on."""

    max_tokens: Annotated[int, Ge(1)]
    temperature: Annotated[float, Ge(0), Le(100)]
    seed: int
    top_k: Annotated[int, Ge(1)] | None
    top_p: Annotated[float, Ge(0), Le(1)]
    min_p: Annotated[float, Ge(0), Le(1)]
    repetition_penalty: Annotated[float, Gt(0), Le(100)]
    presence_penalty: Annotated[float, Ge(-100), Le(100)]
    frequency_penalty: Annotated[float, Ge(-100), Le(100)]
    stop: tuple[str, ...]
    logprobs: Annotated[int, Ge(0)] | None
    logit_bias: Mapping[int, float]


def check_bounds(settings: object) -> None:
    """Raise if a field of a dataclass is outside the bounds of its annotation; None is allowed.

    >>> check_bounds(SamplingParams(temperature=2.0))
    """
    for name, bound in _bounds(type(settings)):
        value = getattr(settings, name)
        if value is None:
            continue
        if isinstance(bound, Gt) and not value > bound.gt:
            hint = f"{name} must be above {bound.gt:g}."
        elif isinstance(bound, Ge) and not value >= bound.ge:
            hint = f"{name} must be at least {bound.ge:g}."
        elif isinstance(bound, Le) and not value <= bound.le:
            hint = f"{name} must be at most {bound.le:g}."
        else:
            continue
        raise InvalidInput(f"{name} is {value}.", hint=hint)


@cache
def _bounds(settings_type: type) -> list[tuple[str, object]]:
    """Return (field name, bound) for each bound, also of the members of a union (`Annotated[...] | None`)."""
    hints = get_type_hints(settings_type, include_extras=True)
    return [
        (name, bound)
        for name, hint in hints.items()
        for part in (hint, *get_args(hint))
        for bound in getattr(part, "__metadata__", ())
    ]
