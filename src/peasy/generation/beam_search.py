"""Beam search with length penalty: a strategy of the engine whose beams are rows of the same forward pass.

Each beam has its own decode state, forked where a beam has several children; encoder outputs are computed once per
source and shared.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from peasy.generation.request import Ended, FinishReason, Hypothesis
from peasy.generation.request_queue import ResponseStream
from peasy.generation.sampling import NoValidToken
from peasy.generation.sequence import Row, RunningSequence
from peasy.models.protocol import DecodeState
from peasy.tokenization import Tokenizer


@dataclass(eq=False)
class _Beam:
    """Unfinished hypothesis: generated ids, log-probability, decode state of the prompt and all ids but the last."""

    ids: tuple[int, ...]
    logprob: float
    state: DecodeState


class BeamSearchSequence(RunningSequence):
    """Strategy that searches: running beams, most likely first, and finished hypotheses."""

    def __init__(self, response: ResponseStream, choice: int, tokenizer: Tokenizer | None) -> None:
        super().__init__(response, choice, tokenizer)
        assert self.request.beam_search is not None
        self.params = self.request.beam_search
        self.beams: list[_Beam] = []
        self.hypotheses: list[Hypothesis] = []

    def next_rows(self, end: int, may_draft: bool) -> list[Row]:
        """Return one row for each beam, or the prompt."""
        if not self.beams:
            return super().next_rows(end, may_draft)
        num_cached = self.prompt_length + self.num_generated - 1
        return [Row(self, beam.ids[-1:], beam.state, num_cached, self._new_attention_topk()) for beam in self.beams]

    def accept(self, rows: list[Row], eos: tuple[int, ...]) -> None:
        """Extend every beam by its top tokens; keep the best unfinished children and the finished ones."""
        if not self.beams:
            assert self.state is not None
            self.beams, self.state, self.pages = [_Beam((), 0.0, self.state)], None, None
        for beam, row in zip(self.beams, rows, strict=True):
            row.observe((*self.ids, *beam.ids))
        # Even if every beam takes all its eos ids, `num_beams` other candidates remain.
        num_candidates = max(2, 1 + len(eos)) * self.params.num_beams
        logits = torch.stack([row.logits for row in rows if row.logits is not None])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        top = logits.topk(min(num_candidates, logits.shape[1]))
        logprobs = (top.values.double() - logits.logsumexp(dim=1, keepdim=True)).tolist()  # NaN if any logit is NaN
        if any(math.isnan(row[0]) for row in logprobs):
            self.finish("error", NoValidToken("The model's logits are not finite: no token can be chosen."))
            return
        self.num_generated += 1
        candidates = [
            (beam.logprob + logprob, -parent, -id)
            for parent, beam in enumerate(self.beams)
            for logprob, id in zip(logprobs[parent], top.indices[parent].tolist(), strict=True)
        ]
        self._expand(heapq.nlargest(num_candidates, candidates), eos)
        if not self.beams or self._is_decided():
            self.beams = []
            if self.hypotheses:
                best, hypotheses = self.hypotheses[0], tuple(self.hypotheses[: self.params.n])
                reason: FinishReason = "eos" if best.has_eos else "length"
                self._end(Ended(self.choice, reason, len(best.ids), hypotheses=hypotheses))
            else:
                self._end(Ended(self.choice, "error", 0, "", NoValidToken("Every sequence has probability 0.")))

    def _expand(self, candidates: list[tuple[float, int, int]], eos: tuple[int, ...]) -> None:
        """Replace the beams by the best of these children (log-probability, minus parent, minus id), best first."""
        children: list[tuple[int, tuple[int, ...], float]] = []
        for rank, (logprob, parent, id) in enumerate(candidates):
            ids = (*self.beams[-parent].ids, -id)
            if logprob == -math.inf:
                break
            if -id not in eos and len(ids) < self.max_new_tokens:
                children.append((-parent, ids, logprob))
            elif rank < self.params.num_beams:
                score = logprob / len(ids) ** self.params.length_penalty
                self.hypotheses.append(Hypothesis(ids, score, logprob, -id in eos))
        self.hypotheses = heapq.nlargest(self.params.num_beams, self.hypotheses, key=lambda one: one.score)
        children = children[: self.params.num_beams]
        last_child = {parent: index for index, (parent, _, _) in enumerate(children)}  # takes over the parent's state
        states = [self.beams[parent].state for parent, _, _ in children]
        self.beams = [
            _Beam(ids, logprob, state if last_child[parent] == index else state.fork())
            for index, ((parent, ids, logprob), state) in enumerate(zip(children, states, strict=True))
        ]

    def _is_decided(self) -> bool:
        """True if no running beam is expected to become better than the finished hypotheses."""
        if len(self.hypotheses) < self.params.num_beams or self.params.early_stopping == "always":
            return len(self.hypotheses) >= self.params.num_beams
        best, length = self.beams[0], len(self.beams[0].ids)
        if self.params.early_stopping == "never" and self.params.length_penalty > 0:
            length = self.max_new_tokens
        return bool(best.logprob / length**self.params.length_penalty <= self.hypotheses[-1].score)

    def _restart_rows(self, rows: list[Row], new_state: Callable[[], DecodeState]) -> list[Row]:
        if not self.beams:
            return super()._restart_rows(rows, new_state)
        for beam in self.beams:
            beam.state = new_state()
        return [
            replace(row, ids=[*self.ids, *beam.ids], state=beam.state, num_cached=0)
            for row, beam in zip(rows, self.beams, strict=True)
        ]
