"""How the next token is chosen from the scores of all tokens: the best one, or one drawn by its chance.

The order is that of the common libraries: bias, penalties, temperature, top-k, top-p, min-p, then the draw.
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
from peasy.nn.part import check

_ABOVE = {"temperature": 100.0, "top_p": 1.0, "min_p": 1.0, "presence_penalty": 100.0, "frequency_penalty": 100.0}


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and when it is enough.

    `temperature` 0 takes the best token; above 0 draws, from chances that `top_k`, `top_p` and `min_p` cut to the
    likely ones. `repetition_penalty` divides the scores of tokens that were read or written; `presence_penalty` and
    `frequency_penalty` are taken from those written, once and for each time. `logit_bias` is added to the scores of
    ids; minus infinity forbids one. `stop` are texts before which writing ends. `logprobs`: how many of the likeliest
    tokens are told at each step, 0 = only the chosen one, None = nothing.

    >>> Sampling(temperature=0.8, top_p=0.9).top_k is None
    True
    >>> Sampling(top_p=1.5)
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
        check(self, max_tokens=1, temperature=0, top_k=1, top_p=0, min_p=0, logprobs=0)
        check(self, presence_penalty=-100, frequency_penalty=-100)
        for name, most in _ABOVE.items():
            if not getattr(self, name) <= most:
                raise InvalidInput(f"{name} is {getattr(self, name)}.", hint=f"{name} must be at most {most:g}.")
        if not 0 < self.repetition_penalty < math.inf:
            raise InvalidInput(f"repetition_penalty is {self.repetition_penalty}.", hint="It must be above 0.")
        if not all(isinstance(text, str) and text for text in self.stop):
            raise InvalidInput("A stop text is empty.", hint="Give at least one character.")
        if any(math.isnan(bias) or bias == math.inf for bias in self.logit_bias.values()):
            raise InvalidInput("A logit bias is not a finite number.", hint="Only minus infinity is: it forbids an id.")

    @property
    def draws(self) -> bool:
        """Whether there is chance in it."""
        return self.temperature > 0

    @property
    def bends(self) -> bool:
        """Whether what was read and written, or a bias, changes the scores."""
        penalties = (self.repetition_penalty - 1, self.presence_penalty, self.frequency_penalty)
        return any(penalties) or bool(self.logit_bias)


class Candidate(NamedTuple):
    """A token and the logarithm of its chance."""

    id: int
    logprob: float


class Chosen(NamedTuple):
    """What was chosen. Log-probabilities are the model's own, before anything of `Sampling` bends them.

    `logprob` is None and `candidates` empty unless they were asked for; candidates come likeliest first.
    """

    id: int
    logprob: float | None = None
    candidates: tuple[Candidate, ...] = ()


class Chooser:
    """Chooses the tokens of one text; its chance is its own, so that no other text changes it.

    >>> chooser = Chooser(Sampling(temperature=1.0, seed=3, top_k=2), prompt=[0])
    >>> scores = torch.tensor([1.0, 2.0, 3.0, -torch.inf])
    >>> [round(chance, 3) for chance in chooser.probabilities(scores).tolist()]
    [0.0, 0.269, 0.731, 0.0]
    >>> chooser.choose(scores).id in (1, 2)
    True
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int] = ()) -> None:
        self.sampling = sampling
        self.read = set(prompt)
        self.written: Counter[int] = Counter()
        self.chance = random.Random(sampling.seed)

    def choose(self, scores: Tensor) -> Chosen:
        """The next token, `scores` `[vocabulary]`; it is remembered as written."""
        scores = scores.detach().cpu()
        if self.sampling.draws:
            id = draw(self.probabilities(scores), self.chance.random())
        else:
            id = _best(self._bend(scores))
        self.take(id)
        return self._tell(id, scores)

    def take(self, id: int) -> None:
        """Remember a token as written: later ones are chosen with it in mind."""
        self.written[id] += 1

    def probabilities(self, scores: Tensor) -> Tensor:
        """The chances from which the next token is drawn, `[vocabulary]`, exactly 0 for what was cut; no state moves.

        Without temperature the best token has all of it.
        """
        sampling, bent = self.sampling, self._bend(scores.detach().cpu()).double()
        if not sampling.draws:
            return torch.zeros_like(bent).index_fill_(0, torch.tensor([_best(bent)]), 1.0)
        top = bent[_best(bent)]
        bent = (bent - top) / sampling.temperature  # the best is 0 now: nothing can overflow
        bent = keep_top_k(bent, sampling.top_k)
        bent = keep_top_p(bent, sampling.top_p)
        return torch.softmax(keep_min_p(bent, sampling.min_p), dim=-1)

    def _bend(self, scores: Tensor) -> Tensor:
        sampling = self.sampling
        if not sampling.bends:
            return scores
        scores = scores.clone()
        for id, bias in sampling.logit_bias.items():
            if not 0 <= id < len(scores):
                raise InvalidInput(f"There is no token {id} to bias.", hint=f"This model knows 0 to {len(scores) - 1}.")
            scores[id] += bias
        if sampling.repetition_penalty != 1 and (seen := torch.tensor([*self.read | self.written.keys()])).numel():
            held = scores[seen]
            scores[seen] = torch.where(held < 0, held * sampling.repetition_penalty, held / sampling.repetition_penalty)
        if (sampling.presence_penalty or sampling.frequency_penalty) and self.written:
            often = torch.tensor([*self.written.values()], dtype=scores.dtype)
            scores[[*self.written]] -= sampling.presence_penalty + sampling.frequency_penalty * often
        return scores

    def _tell(self, id: int, scores: Tensor) -> Chosen:
        if (count := self.sampling.logprobs) is None:
            return Chosen(id)
        logs = torch.log_softmax(scores.double(), dim=-1)
        top = logs.topk(min(count, len(logs)))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return Chosen(id, float(logs[id]), tuple(Candidate(*pair) for pair in pairs if pair[1] > -math.inf))


def draw(chances: Tensor, at: float) -> int:
    """The token whose share of the way from 0 to 1 holds `at`; one without a share is never met, not even at the ends.

    >>> [draw(torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0]), at) for at in (0.0, 0.5, 1.0)]
    [1, 3, 3]
    """
    reached = chances.double().cumsum(dim=0)
    found = int(torch.searchsorted(reached, at * reached[-1], right=True))  # the first whose end lies beyond `at`
    return found if found < len(chances) else int(chances.nonzero()[-1])  # rounding can bring `at` to the very end


def keep_top_k(scores: Tensor, count: int | None) -> Tensor:
    """Only the `count` best; those equal to the last of them stay too."""
    if count is None or count >= len(scores):
        return scores
    return scores.masked_fill(scores < scores.topk(count).values[-1], -torch.inf)


def keep_top_p(scores: Tensor, share: float) -> Tensor:
    """Only the best that together have at least `share` of the chance; there is always one."""
    if share >= 1:
        return scores
    best = scores[scores > -torch.inf].sort(descending=True).values
    chances = torch.softmax(best, dim=0)
    needed = int((chances.cumsum(0) - chances < share).sum())  # a token is needed while those before it are too few
    return scores.masked_fill(scores < best[max(needed, 1) - 1], -torch.inf)


def keep_min_p(scores: Tensor, share: float) -> Tensor:
    """Only those with at least `share` of the best one's chance."""
    if share <= 0:
        return scores
    return scores.masked_fill(scores < scores.max() + math.log(share), -torch.inf)


def _best(scores: Tensor) -> int:
    """Where the largest score is; torch finds a NaN before every number, so one look at it tells of all."""
    best = int(scores.argmax())
    if not math.isfinite(scores[best]):
        what = "nothing but minus infinity" if scores[best] == -math.inf else "no finite numbers"
        raise NoChoice(f"The model's scores are {what}: there is no token to choose.")
    return best


class NoChoice(InvalidInput):
    """The scores of a text do not tell which token comes next; other texts go on."""

    code = "no-choice"
