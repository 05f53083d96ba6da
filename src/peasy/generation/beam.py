"""Beam search with length penalty; all beams of all prompts share one forward pass per step.

Each beam has its own decode state, forked where a beam has several children; encoder outputs are computed once per
source and shared.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from peasy.errors import InvalidInput
from peasy.generation.decode import open_text
from peasy.generation.prompt import Ids, count_texts
from peasy.generation.sampling import NoChoice, Sampling
from peasy.models.protocol import Model
from peasy.nn.part import check


@dataclass(frozen=True)
class Beams:
    """Beam search parameters: number of beams, at most `max_tokens` new tokens, the best `n` hypotheses returned.

    A hypothesis scores the sum of its log-probabilities divided by its length to the power of `length_penalty`: above 0
    favours long sequences, 0 is the plain sum. `early_stopping`: "first" stops at the first `num_beams` finished
    hypotheses; "likely" when no running beam would score better if it ended now (as in transformers); "sure" when no
    running beam can become better at all.
    """

    width: int = 4
    max_tokens: int = 64
    length_penalty: float = 1.0
    n: int = 1
    patience: Literal["first", "likely", "sure"] = "likely"

    def __post_init__(self) -> None:
        check(self, width=1, max_tokens=1, n=1)
        if self.n > self.width:
            raise InvalidInput(f"n is {self.n}, but there are only {self.width} beams.", hint="Use at least n beams.")
        if not math.isfinite(self.length_penalty):
            raise InvalidInput(f"length_penalty is {self.length_penalty}.", hint="Give a finite number.")
        if self.patience not in ("first", "likely", "sure"):
            raise InvalidInput(f"Unknown patience {self.patience!r}.", hint="Choose first, likely or sure.")


@dataclass(frozen=True)
class Hypothesis:
    """Finished beam: token ids (eos included), length-normalised score, and sum of log-probabilities."""

    ids: tuple[int, ...]
    score: float
    logprob: float
    ended: bool


@dataclass(frozen=True)
class Found:
    """Beam search result for one prompt or source: hypotheses, best first, or the error."""

    best: tuple[Hypothesis, ...] = ()
    error: InvalidInput | None = None


def search(
    model: Model, prompts: Ids | None = None, beams: Beams | None = None, *, source: Ids | None = None
) -> list[Found]:
    """Return the most likely continuations of each prompt, or outputs for each source; errors are per prompt.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> results = search(build(preset("gpt-tiny"), seed=1), [[1, 2, 3]], Beams(width=3, max_tokens=4, n=2))
    >>> [len(hypothesis.ids) for hypothesis in results[0].best]
    [4, 4]
    """
    beams = beams or Beams()
    searches = [
        _start(model, beams, prompts[row] if prompts else None, source[row] if source else None)
        for row in range(count_texts(prompts, source))
    ]
    while running := [search for search in searches if isinstance(search, _Search) and not search.over]:
        _step(model, running)
    return [search.finish() if isinstance(search, _Search) else search for search in searches]


@dataclass(eq=False)
class _Beam:
    """Unfinished hypothesis: generated ids, ids of the next forward pass, log-probability, decode state."""

    ids: tuple[int, ...]
    new: Sequence[int]
    logprob: float
    memory: Any


@dataclass(eq=False)
class _Search:
    """Beam search over one prompt: running beams, most likely first, and finished hypotheses."""

    settings: Beams
    most: int
    end: tuple[int, ...]
    running: list[_Beam]
    found: list[Hypothesis] = field(default_factory=list)
    error: InvalidInput | None = None

    @property
    def over(self) -> bool:
        if not self.running or self.error is not None:
            return True
        if len(self.found) < self.settings.width:
            return False
        return self.settings.patience == "first" or self._hope() <= self.found[-1].score

    def _hope(self) -> float:
        """Best score that a running beam is expected to reach."""
        length = len(self.running[0].ids)
        if self.settings.patience == "sure" and self.settings.length_penalty > 0:
            length = self.most
        return self.running[0].logprob / length**self.settings.length_penalty

    def grow(self, best: list[list[float]], ids: list[list[int]]) -> None:
        """Extend every beam by its top tokens; keep the best unfinished children and the finished ones."""
        parents, self.running = self.running, []
        if any(math.isnan(beam[0]) for beam in best):
            self.error = NoChoice("The model's logits are not finite: no token can be chosen.")
            return
        candidates = [
            (beam.logprob + logprob, -parent, -id)
            for parent, beam in enumerate(parents)
            for logprob, id in zip(best[parent], ids[parent], strict=True)
        ]
        width = self.settings.width
        children: list[tuple[int, int, float]] = []
        for rank, (logprob, parent, id) in enumerate(heapq.nlargest(self.count, candidates)):
            sequence = (*parents[-parent].ids, -id)
            if logprob == -math.inf:
                break
            if -id not in self.end and len(sequence) < self.most:
                children.append((-parent, -id, logprob))
            elif rank < width:
                self._keep(sequence, logprob)
        self.running = _inherit(parents, children[:width])

    @property
    def count(self) -> int:
        """Number of candidates per step: even if every beam takes all its eos ids, `num_beams` others remain."""
        return max(2, 1 + len(self.end)) * self.settings.width

    def _keep(self, ids: tuple[int, ...], logprob: float) -> None:
        score = logprob / len(ids) ** self.settings.length_penalty
        self.found.append(Hypothesis(ids, score, logprob, ids[-1] in self.end))
        self.found = heapq.nlargest(self.settings.width, self.found, key=lambda hypothesis: hypothesis.score)

    def finish(self) -> Found:
        if self.error is not None or not self.found:
            return Found(error=self.error or NoChoice("Every sequence has probability 0."))
        return Found(tuple(self.found[: self.settings.n]))


def _inherit(parents: list[_Beam], children: list[tuple[int, int, float]]) -> list[_Beam]:
    """Make the child beams; the last child of a parent takes over its state, the others get forks."""
    children_left = [sum(parent == index for parent, _, _ in children) for index in range(len(parents))]
    beams = []
    for parent, id, logprob in children:
        children_left[parent] -= 1
        state = parents[parent].memory.fork() if children_left[parent] else parents[parent].memory
        beams.append(_Beam((*parents[parent].ids, id), (id,), logprob, state))
    return beams


def _start(model: Model, beams: Beams, prompt: Sequence[int] | None, source: Sequence[int] | None) -> "_Search | Found":
    try:
        sequence = open_text(model, prompt, source, Sampling(max_tokens=beams.max_tokens))
    except InvalidInput as error:
        return Found(error=error)
    return _Search(beams, sequence.most, model.config.special.end, [_Beam((), sequence.ids, 0.0, sequence.memory)])


@torch.inference_mode()
def _step(model: Model, searches: list[_Search]) -> None:
    """Extend the beams of all searches by one token, in one forward pass."""
    beams = [beam for search in searches for beam in search.running]
    logits = torch.stack(model.read([beam.new for beam in beams], [beam.memory for beam in beams]))
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    top = logits.topk(min(max(search.count for search in searches), logits.shape[1]))
    logprobs = top.values.double() - logits.logsumexp(dim=1, keepdim=True)  # NaN if any logit is NaN
    best, ids = iter(logprobs.tolist()), iter(top.indices.tolist())
    for search in searches:
        search.grow([next(best) for _ in search.running], [next(ids) for _ in search.running])
