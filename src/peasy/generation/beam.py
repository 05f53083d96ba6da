"""Beam search: several beginnings are kept at once, and the text whose tokens are likeliest together wins.

Beams are rows of the same reading as everything else: each has its own memory, forked where a beam has two children;
what was computed from a source is computed once and shared by all.
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
    """How to search: `width` beams, texts of at most `max_tokens`, the best `n` of them told.

    A text's score is the sum of its log-probabilities divided by its length to the power of `length_penalty`: above 0
    favours long texts, 0 is the plain sum. `patience` says when the search is over: "first", as soon as there are
    enough whole texts; "likely", when no beam would be better if it ended now (what the common libraries do); "sure",
    when no beam can become better at all.
    """

    width: int = 4
    max_tokens: int = 64
    length_penalty: float = 1.0
    n: int = 1
    patience: Literal["first", "likely", "sure"] = "likely"

    def __post_init__(self) -> None:
        check(self, width=1, max_tokens=1, n=1)
        if self.n > self.width:
            raise InvalidInput(f"n is {self.n}, and there are {self.width} beams.", hint="Take at least n beams.")
        if not math.isfinite(self.length_penalty):
            raise InvalidInput(f"length_penalty is {self.length_penalty}.", hint="Give a finite number.")
        if self.patience not in ("first", "likely", "sure"):
            raise InvalidInput(f"There is no patience {self.patience!r}.", hint="Known: first, likely, sure.")


@dataclass(frozen=True)
class Hypothesis:
    """One text that was found: its ids, an end id included; its score, and the sum of its log-probabilities."""

    ids: tuple[int, ...]
    score: float
    logprob: float
    ended: bool


@dataclass(frozen=True)
class Found:
    """What was found for one prompt or source, best first; or why there is nothing."""

    best: tuple[Hypothesis, ...] = ()
    error: InvalidInput | None = None


def search(
    model: Model, prompts: Ids | None = None, beams: Beams | None = None, *, source: Ids | None = None
) -> list[Found]:
    """The likeliest texts after each prompt, or as answers to each source. One that fails leaves the others alone.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> found = search(build(preset("gpt-tiny"), seed=1), [[1, 2, 3]], Beams(width=3, max_tokens=4, n=2))
    >>> [len(one.ids) for one in found[0].best]
    [4, 4]
    """
    beams = beams or Beams()
    searches = [
        _start(model, beams, prompts[row] if prompts else None, source[row] if source else None)
        for row in range(count_texts(prompts, source))
    ]
    while running := [each for each in searches if isinstance(each, _Search) and not each.over]:
        _step(model, running)
    return [each.finish() if isinstance(each, _Search) else each for each in searches]


@dataclass(eq=False)
class _Beam:
    """A beginning: what it has written, what is to be read next, and how likely it is."""

    ids: tuple[int, ...]
    new: Sequence[int]
    logprob: float
    memory: Any


@dataclass(eq=False)
class _Search:
    """The search for one text: `running` beams, likeliest first, and whole texts in `found`."""

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
        """The best score that a running beam is thought to reach."""
        length = len(self.running[0].ids)
        if self.settings.patience == "sure" and self.settings.length_penalty > 0:
            length = self.most
        return self.running[0].logprob / length**self.settings.length_penalty

    def grow(self, best: list[list[float]], ids: list[list[int]]) -> None:
        """Every beam with its likeliest tokens; the likeliest of all go on, those that have ended are kept."""
        parents, self.running = self.running, []
        if any(math.isnan(beam[0]) for beam in best):
            self.error = NoChoice("The model's scores are no finite numbers: there is no token to choose.")
            return
        every = [
            (beam.logprob + logprob, -parent, -id)
            for parent, beam in enumerate(parents)
            for logprob, id in zip(best[parent], ids[parent], strict=True)
        ]
        width = self.settings.width
        children: list[tuple[int, int, float]] = []
        for rank, (logprob, parent, id) in enumerate(heapq.nlargest(self.count, every)):
            text = (*parents[-parent].ids, -id)
            if logprob == -math.inf:
                break
            if -id not in self.end and len(text) < self.most:
                children.append((-parent, -id, logprob))
            elif rank < width:
                self._keep(text, logprob)
        self.running = _inherit(parents, children[:width])

    @property
    def count(self) -> int:
        """So many children are looked at: if all that can end do, as many as there are beams still go on."""
        return max(2, 1 + len(self.end)) * self.settings.width

    def _keep(self, ids: tuple[int, ...], logprob: float) -> None:
        score = logprob / len(ids) ** self.settings.length_penalty
        self.found.append(Hypothesis(ids, score, logprob, ids[-1] in self.end))
        self.found = heapq.nlargest(self.settings.width, self.found, key=lambda one: one.score)

    def finish(self) -> Found:
        if self.error is not None or not self.found:
            return Found(error=self.error or NoChoice("No text has a chance at all."))
        return Found(tuple(self.found[: self.settings.n]))


def _inherit(parents: list[_Beam], children: list[tuple[int, int, float]]) -> list[_Beam]:
    """New beams with their parents' memories: the last child takes it over, the ones before get a copy."""
    left = [sum(parent == each for parent, _, _ in children) for each in range(len(parents))]
    born = []
    for parent, id, logprob in children:
        left[parent] -= 1
        memory = parents[parent].memory.fork() if left[parent] else parents[parent].memory
        born.append(_Beam((*parents[parent].ids, id), (id,), logprob, memory))
    return born


def _start(model: Model, beams: Beams, prompt: Sequence[int] | None, source: Sequence[int] | None) -> "_Search | Found":
    try:
        text = open_text(model, prompt, source, Sampling(max_tokens=beams.max_tokens))
    except InvalidInput as error:
        return Found(error=error)
    return _Search(beams, text.most, model.config.special.end, [_Beam((), text.ids, 0.0, text.memory)])


@torch.inference_mode()
def _step(model: Model, searches: list[_Search]) -> None:
    """One token for the beams of all searches, in one pass."""
    beams = [beam for each in searches for beam in each.running]
    scores = torch.stack(model.read([beam.new for beam in beams], [beam.memory for beam in beams]))
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    top = scores.topk(min(max(each.count for each in searches), scores.shape[1]))
    logs = top.values.double() - scores.logsumexp(dim=1, keepdim=True)  # not a number where a score is none
    best, ids = iter(logs.tolist()), iter(top.indices.tolist())
    for each in searches:
        each.grow([next(best) for _ in each.running], [next(ids) for _ in each.running])
