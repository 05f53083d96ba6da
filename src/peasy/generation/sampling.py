"""Sampling of the next token from logits: greedy or random, with penalties, temperature, top-k, top-p, min-p.

Order as in transformers and vLLM: bias, penalties, temperature, top-k, top-p, min-p, then the draw.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.generation.sampling_params import SamplingParams


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
        penalties = (params.repetition_penalty - 1, params.presence_penalty, params.frequency_penalty)
        self.params, self.changes_logits = params, any(penalties) or bool(params.logit_bias)
        self.prompt_ids = set(prompt)
        self.generated_counts: Counter[int] = Counter()
        self.rng = random.Random(params.seed)

    def sample(self, logits: Tensor) -> SampledToken:
        """Sample the next token from `logits` `[vocab_size]` and count it as generated."""
        if logits.requires_grad or not logits.is_cpu:
            logits = logits.detach().cpu()
        if self.params.temperature > 0:
            id = draw_index(self.probabilities(logits), self.rng.random())
        else:
            id = _argmax_finite(self._process_logits(logits))
        self.generated_counts[id] = self.generated_counts.get(id, 0) + 1  # for the penalties
        return (
            SampledToken(id)
            if self.params.logprobs is None
            else score_token(id, torch.log_softmax(logits.double(), dim=-1), self.params.logprobs)
        )

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the sampling distribution `[vocab_size]`, exactly 0 for filtered tokens; changes no state.

        With temperature 0, the best token has probability 1.
        """
        params, processed = self.params, self._process_logits(logits.detach().cpu()).double()
        if not params.temperature:
            return torch.zeros_like(processed).index_fill_(0, torch.tensor([_argmax_finite(processed)]), 1.0)
        top = processed[_argmax_finite(processed)]
        processed = (processed - top) / params.temperature  # the maximum is 0: nothing can overflow
        k = params.top_k
        processed = (
            processed
            if k is None or k >= len(processed)
            else processed.masked_fill(processed < processed.topk(k).values[-1], -torch.inf)
        )
        if params.top_p < 1:  # the most likely tokens whose probabilities sum to at least p; always at least one
            ranked = processed[processed > -torch.inf].sort(descending=True).values
            shares = torch.softmax(ranked, dim=0)
            needed = int((shares.cumsum(0) - shares < params.top_p).sum())  # tokens before which the sum is below p
            processed = processed.masked_fill(processed < ranked[max(needed, 1) - 1], -torch.inf)
        if params.min_p > 0:  # at least p times the probability of the best one
            processed = processed.masked_fill(processed < processed.max() + math.log(params.min_p), -torch.inf)
        return torch.softmax(processed, dim=-1)

    def _process_logits(self, logits: Tensor) -> Tensor:
        params = self.params
        if not self.changes_logits:
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


def score_token(id: int, logprobs: Tensor, count: int) -> SampledToken:
    """Return a token with its log-probability and the `count` most likely tokens, from all of them `[vocab_size]`."""
    top = logprobs.topk(min(count, len(logprobs)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return SampledToken(id, float(logprobs[id]), tuple(TokenLogprob(*pair) for pair in pairs if pair[1] > -math.inf))


def draw_index(probabilities: Tensor, u: float) -> int:
    """Inverse-CDF draw: return the index whose interval of [0, 1] holds `u`; never one with probability 0.

    >>> [draw_index(torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0]), u) for u in (0.0, 0.5, 1.0)]
    [1, 3, 3]
    """
    cumulative = probabilities.double().cumsum(dim=0)
    index = int(torch.searchsorted(cumulative, u * cumulative[-1], right=True))  # first interval that ends after u
    # Rounding can bring u to the very end.
    return index if index < len(probabilities) else int(probabilities.nonzero()[-1])


def _argmax_finite(logits: Tensor) -> int:
    """Return the argmax; raise if it is not finite (NumPy's argmax prefers NaN, so this detects any NaN)."""
    array = (logits.float() if logits.dtype == torch.bfloat16 else logits).numpy()  # NumPy has no bfloat16
    best = int(array.argmax())
    if not math.isfinite(array[best]):
        problem = "all minus infinity" if array[best] == -math.inf else "not finite"
        raise NoValidToken(f"The model's logits are {problem}: no token can be chosen.")
    return best


class NoValidToken(InvalidInput):
    """Error: the logits of a sequence allow no token; other sequences continue."""

    code = "no-valid-token"
