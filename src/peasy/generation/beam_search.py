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
from peasy.generation.decode import open_sequence
from peasy.generation.prompt import TokenIds, count_sequences
from peasy.generation.sampling import NoValidToken
from peasy.generation.sampling_params import SamplingParams
from peasy.models.protocol import Model
from peasy.nn.config import check_minimums


@dataclass(frozen=True)
class BeamSearchParams:
    """Beam search parameters: number of beams, at most `max_tokens` new tokens, the best `n` hypotheses returned.

    A hypothesis scores the sum of its log-probabilities divided by its length to the power of `length_penalty`: above 0
    favours long sequences, 0 is the plain sum. `early_stopping`, as in transformers: "always" stops at the first
    `num_beams` finished hypotheses; "heuristic" when no running beam would score better if it ended now; "never" only
    when no running beam can become better at all.
    """

    num_beams: int = 4
    max_tokens: int = 64
    length_penalty: float = 1.0
    n: int = 1
    early_stopping: Literal["always", "heuristic", "never"] = "heuristic"

    def __post_init__(self) -> None:
        check_minimums(self, num_beams=1, max_tokens=1, n=1)
        if self.n > self.num_beams:
            raise InvalidInput(
                f"n is {self.n}, but there are only {self.num_beams} beams.", hint="Use at least n beams."
            )
        if not math.isfinite(self.length_penalty):
            raise InvalidInput(f"length_penalty is {self.length_penalty}.", hint="Give a finite number.")
        if self.early_stopping not in ("always", "heuristic", "never"):
            raise InvalidInput(f"early_stopping is {self.early_stopping!r}.", hint="Choose always, heuristic or never.")


@dataclass(frozen=True)
class Hypothesis:
    """Finished beam: token ids (eos included), length-normalised score, and sum of log-probabilities."""

    ids: tuple[int, ...]
    score: float
    logprob: float
    has_eos: bool


@dataclass(frozen=True)
class BeamResult:
    """Beam search result for one prompt or source: hypotheses, best first, or the error."""

    hypotheses: tuple[Hypothesis, ...] = ()
    error: InvalidInput | None = None


def beam_search(
    model: Model,
    prompts: TokenIds | None = None,
    params: BeamSearchParams | None = None,
    *,
    source: TokenIds | None = None,
) -> list[BeamResult]:
    """Return the most likely continuations of each prompt, or outputs for each source; errors are per prompt.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> params = BeamSearchParams(num_beams=3, max_tokens=4, n=2)
    >>> results = beam_search(build(preset("gpt-tiny"), seed=1), [[1, 2, 3]], params)
    >>> [len(hypothesis.ids) for hypothesis in results[0].hypotheses]
    [4, 4]
    """
    params = params or BeamSearchParams()
    searches = [
        _start_search(model, params, prompts[row] if prompts else None, source[row] if source else None)
        for row in range(count_sequences(prompts, source))
    ]
    while running := [search for search in searches if isinstance(search, _BeamSearch) and not search.is_finished]:
        _step_all(model, running)
    return [search.result() if isinstance(search, _BeamSearch) else search for search in searches]


@dataclass(eq=False)
class _Beam:
    """Unfinished hypothesis: generated ids, ids of the next forward pass, log-probability, decode state."""

    ids: tuple[int, ...]
    new_ids: Sequence[int]
    logprob: float
    state: Any


@dataclass(eq=False)
class _BeamSearch:
    """Beam search over one prompt: running beams, most likely first, and finished hypotheses."""

    params: BeamSearchParams
    max_new_tokens: int
    eos: tuple[int, ...]
    beams: list[_Beam]
    hypotheses: list[Hypothesis] = field(default_factory=list)
    error: InvalidInput | None = None

    @property
    def is_finished(self) -> bool:
        if not self.beams or self.error is not None:
            return True
        if len(self.hypotheses) < self.params.num_beams:
            return False
        return self.params.early_stopping == "always" or self._best_attainable_score() <= self.hypotheses[-1].score

    def _best_attainable_score(self) -> float:
        """Best score that a running beam is expected to reach."""
        length = len(self.beams[0].ids)
        if self.params.early_stopping == "never" and self.params.length_penalty > 0:
            length = self.max_new_tokens
        return self.beams[0].logprob / length**self.params.length_penalty

    def expand(self, logprobs: list[list[float]], ids: list[list[int]]) -> None:
        """Extend every beam by its top tokens; keep the best unfinished children and the finished ones."""
        parents, self.beams = self.beams, []
        if any(math.isnan(beam[0]) for beam in logprobs):
            self.error = NoValidToken("The model's logits are not finite: no token can be chosen.")
            return
        candidates = [
            (beam.logprob + logprob, -parent, -id)
            for parent, beam in enumerate(parents)
            for logprob, id in zip(logprobs[parent], ids[parent], strict=True)
        ]
        width = self.params.num_beams
        children: list[tuple[int, int, float]] = []
        for rank, (logprob, parent, id) in enumerate(heapq.nlargest(self.num_candidates, candidates)):
            sequence = (*parents[-parent].ids, -id)
            if logprob == -math.inf:
                break
            if -id not in self.eos and len(sequence) < self.max_new_tokens:
                children.append((-parent, -id, logprob))
            elif rank < width:
                self._add_hypothesis(sequence, logprob)
        self.beams = _make_children(parents, children[:width])

    @property
    def num_candidates(self) -> int:
        """Number of candidates per step: even if every beam takes all its eos ids, `num_beams` others remain."""
        return max(2, 1 + len(self.eos)) * self.params.num_beams

    def _add_hypothesis(self, ids: tuple[int, ...], logprob: float) -> None:
        score = logprob / len(ids) ** self.params.length_penalty
        self.hypotheses.append(Hypothesis(ids, score, logprob, ids[-1] in self.eos))
        self.hypotheses = heapq.nlargest(
            self.params.num_beams, self.hypotheses, key=lambda hypothesis: hypothesis.score
        )

    def result(self) -> BeamResult:
        if self.error is not None or not self.hypotheses:
            return BeamResult(error=self.error or NoValidToken("Every sequence has probability 0."))
        return BeamResult(tuple(self.hypotheses[: self.params.n]))


def _make_children(parents: list[_Beam], children: list[tuple[int, int, float]]) -> list[_Beam]:
    """Make the child beams; the last child of a parent takes over its state, the others get forks."""
    children_left = [sum(parent == index for parent, _, _ in children) for index in range(len(parents))]
    beams = []
    for parent, id, logprob in children:
        children_left[parent] -= 1
        state = parents[parent].state.fork() if children_left[parent] else parents[parent].state
        beams.append(_Beam((*parents[parent].ids, id), (id,), logprob, state))
    return beams


def _start_search(
    model: Model, params: BeamSearchParams, prompt: Sequence[int] | None, source: Sequence[int] | None
) -> "_BeamSearch | BeamResult":
    try:
        sequence = open_sequence(model, prompt, source, SamplingParams(max_tokens=params.max_tokens))
    except InvalidInput as error:
        return BeamResult(error=error)
    return _BeamSearch(
        params, sequence.max_new_tokens, model.config.special_tokens.eos, [_Beam((), sequence.ids, 0.0, sequence.state)]
    )


@torch.inference_mode()
def _step_all(model: Model, searches: list[_BeamSearch]) -> None:
    """Extend the beams of all searches by one token, in one forward pass."""
    beams = [beam for search in searches for beam in search.beams]
    logits = torch.stack(model.forward_varlen([beam.new_ids for beam in beams], [beam.state for beam in beams]))
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    top = logits.topk(min(max(search.num_candidates for search in searches), logits.shape[1]))
    logprobs = top.values.double() - logits.logsumexp(dim=1, keepdim=True)  # NaN if any logit is NaN
    best, ids = iter(logprobs.tolist()), iter(top.indices.tolist())
    for search in searches:
        search.expand([next(best) for _ in search.beams], [next(ids) for _ in search.beams])
