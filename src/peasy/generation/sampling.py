"""Sampling of the next token from logits: greedy or random, with penalties, temperature, top-k, top-p, min-p.

Order as in transformers and vLLM: bias, penalties, temperature, top-k, top-p, min-p, then the draw.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.nn.config import check_minimums

_UPPER_BOUNDS = {
    "temperature": 100.0,
    "top_p": 1.0,
    "min_p": 1.0,
    "presence_penalty": 100.0,
    "frequency_penalty": 100.0,
}


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters and stopping conditions.

    `temperature` 0 is greedy; above 0 samples from the probabilities filtered by `top_k`, `top_p` and `min_p`.
    `repetition_penalty` divides the logits of prompt and generated tokens; `presence_penalty` is subtracted once and
    `frequency_penalty` per occurrence, for generated tokens. `logit_bias` is added to the logits of ids; minus infinity
    forbids one. `stop`: strings before which generation ends. `logprobs`: number of top log-probabilities per token,
    0 = only the sampled token's, None = none.

    >>> SamplingParams(temperature=0.8, top_p=0.9).top_k is None
    True
    >>> SamplingParams(top_p=1.5)
    Traceback (most recent call last):
    peasy.errors.InvalidInput: top_p is 1.5.
    """

    max_tokens: int = 20
    temperature: float = 0.0
    seed: int = 0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        check_minimums(self, max_tokens=1, temperature=0, top_k=1, top_p=0, min_p=0, logprobs=0)
        check_minimums(self, presence_penalty=-100, frequency_penalty=-100)
        for name, maximum in _UPPER_BOUNDS.items():
            if not getattr(self, name) <= maximum:
                raise InvalidInput(f"{name} is {getattr(self, name)}.", hint=f"{name} must be at most {maximum:g}.")
        if not 0 < self.repetition_penalty < math.inf:
            raise InvalidInput(f"repetition_penalty is {self.repetition_penalty}.", hint="It must be above 0.")
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


class TokenLogprob(NamedTuple):
    """Token id and its log-probability."""

    id: int
    logprob: float


class SampledToken(NamedTuple):
    """Sampled token; log-probabilities are the model's, before penalties, temperature and filters.

    `logprob` is None and `top_logprobs` empty unless requested; the most likely come first.
    """

    id: int
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()


class Sampler:
    """Sampler of one sequence, with its own random generator, so that other sequences do not affect it.

    >>> sampler = Sampler(SamplingParams(temperature=1.0, seed=3, top_k=2), prompt=[0])
    >>> logits = torch.tensor([1.0, 2.0, 3.0, -torch.inf])
    >>> [round(probability, 3) for probability in sampler.probabilities(logits).tolist()]
    [0.0, 0.269, 0.731, 0.0]
    >>> sampler.sample(logits).id in (1, 2)
    True
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int] = ()) -> None:
        self.params = params
        self.prompt_ids = set(prompt)
        self.generated_counts: Counter[int] = Counter()
        self.rng = random.Random(params.seed)

    def sample(self, logits: Tensor) -> SampledToken:
        """Sample the next token from `logits` `[vocab_size]` and count it as generated."""
        logits = logits.detach().cpu()
        if self.params.is_random:
            id = draw_index(self.probabilities(logits), self.rng.random())
        else:
            id = _argmax_finite(self._process_logits(logits))
        self.observe(id)
        return self._with_logprobs(id, logits)

    def observe(self, id: int) -> None:
        """Count a token as generated, for the penalties."""
        self.generated_counts[id] += 1

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the sampling distribution `[vocab_size]`, exactly 0 for filtered tokens; changes no state.

        With temperature 0, the best token has probability 1.
        """
        params, processed = self.params, self._process_logits(logits.detach().cpu()).double()
        if not params.is_random:
            return torch.zeros_like(processed).index_fill_(0, torch.tensor([_argmax_finite(processed)]), 1.0)
        top = processed[_argmax_finite(processed)]
        processed = (processed - top) / params.temperature  # the maximum is 0: nothing can overflow
        processed = keep_top_k(processed, params.top_k)
        processed = keep_top_p(processed, params.top_p)
        return torch.softmax(keep_min_p(processed, params.min_p), dim=-1)

    def _process_logits(self, logits: Tensor) -> Tensor:
        params = self.params
        if not params.changes_logits:
            return logits
        logits = logits.clone()
        for id, bias in params.logit_bias.items():
            if not 0 <= id < len(logits):
                raise InvalidInput(f"logit_bias: there is no token {id}.", hint=f"Ids go from 0 to {len(logits) - 1}.")
            logits[id] += bias
        if (
            params.repetition_penalty != 1
            and (seen := torch.tensor([*self.prompt_ids | self.generated_counts.keys()])).numel()
        ):
            values = logits[seen]
            logits[seen] = torch.where(
                values < 0, values * params.repetition_penalty, values / params.repetition_penalty
            )
        if (params.presence_penalty or params.frequency_penalty) and self.generated_counts:
            counts = torch.tensor([*self.generated_counts.values()], dtype=logits.dtype)
            logits[[*self.generated_counts]] -= params.presence_penalty + params.frequency_penalty * counts
        return logits

    def _with_logprobs(self, id: int, logits: Tensor) -> SampledToken:
        if (count := self.params.logprobs) is None:
            return SampledToken(id)
        logprobs = torch.log_softmax(logits.double(), dim=-1)
        top = logprobs.topk(min(count, len(logprobs)))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return SampledToken(
            id, float(logprobs[id]), tuple(TokenLogprob(*pair) for pair in pairs if pair[1] > -math.inf)
        )


def draw_index(probabilities: Tensor, u: float) -> int:
    """Inverse-CDF draw: return the index whose interval of [0, 1] holds `u`; never one with probability 0.

    >>> [draw_index(torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0]), u) for u in (0.0, 0.5, 1.0)]
    [1, 3, 3]
    """
    cumulative = probabilities.double().cumsum(dim=0)
    index = int(torch.searchsorted(cumulative, u * cumulative[-1], right=True))  # first interval that ends after u
    # Rounding can bring u to the very end.
    return index if index < len(probabilities) else int(probabilities.nonzero()[-1])


def keep_top_k(logits: Tensor, k: int | None) -> Tensor:
    """Keep the k largest logits, and ties of the smallest of them."""
    if k is None or k >= len(logits):
        return logits
    return logits.masked_fill(logits < logits.topk(k).values[-1], -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the most likely tokens whose probabilities sum to at least p; always at least one."""
    if p >= 1:
        return logits
    ranked = logits[logits > -torch.inf].sort(descending=True).values
    probabilities = torch.softmax(ranked, dim=0)
    needed = int((probabilities.cumsum(0) - probabilities < p).sum())  # tokens before which the sum is below p
    return logits.masked_fill(logits < ranked[max(needed, 1) - 1], -torch.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Keep tokens with at least p times the probability of the best one."""
    if p <= 0:
        return logits
    return logits.masked_fill(logits < logits.max() + math.log(p), -torch.inf)


def _argmax_finite(logits: Tensor) -> int:
    """Return the argmax; raise if it is not finite (torch's argmax prefers NaN, so this detects any NaN)."""
    best = int(logits.argmax())
    if not math.isfinite(logits[best]):
        problem = "all minus infinity" if logits[best] == -math.inf else "not finite"
        raise NoValidToken(f"The model's logits are {problem}: no token can be chosen.")
    return best


class NoValidToken(InvalidInput):
    """Error: the logits of a sequence allow no token; other sequences continue."""

    code = "no-valid-token"
