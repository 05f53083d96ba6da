"""Speculative decoding with n-gram drafts: several draft tokens are verified in one forward pass.

At every draft token the sampler draws from the model's logits as usual; the draft is accepted while the sampled token
equals it. Every token is sampled from the same logits with the same random numbers as without drafts, so the output
is identical for a given seed, and only the number of passes differs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from peasy.generation.request_queue import ResponseStream
from peasy.generation.sequence import Row, RunningSequence
from peasy.tokenization import Tokenizer

MAX_DRAFT_TOKENS = 15
"""Most draft tokens per pass: with the last token they are sixteen rows, which cost little more than one where decoding
is bound by memory bandwidth."""


@dataclass(frozen=True)
class SpeculationStats:
    """Speculation statistics: drafted, accepted and generated tokens, and forward passes."""

    num_drafted: int
    num_accepted: int
    num_generated: int
    num_passes: int

    @property
    def acceptance_rate(self) -> float:
        """Acceptance rate of draft tokens."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    def summary(self) -> str:
        """Return a one-line description.

        >>> SpeculationStats(num_drafted=40, num_accepted=30, num_generated=50, num_passes=20).summary()
        '30 of 40 draft tokens accepted (75 %): 50 tokens in 20 passes'
        """
        share = f" ({100 * self.acceptance_rate:.0f} %)" if self.num_drafted else ""
        accepted = f"{self.num_accepted} of {self.num_drafted} draft tokens accepted{share}"
        return f"{accepted}: {self.num_generated} tokens in {self.num_passes} passes"


class SpeculativeSequence(RunningSequence):
    """Strategy with draft tokens; drafts get shorter after a rejection and longer after full acceptance."""

    def __init__(self, response: ResponseStream, choice: int, tokenizer: Tokenizer | None) -> None:
        super().__init__(response, choice, tokenizer)
        self.proposer, self.draft_length, self.draft = NgramProposer(self.ids), 4, list[int]()

    def next_rows(self, end: int, may_draft: bool) -> list[Row]:
        """Return the tokens to compute and a draft; no draft during prefill."""
        (row,) = super().next_rows(end, may_draft)
        limit = min(self.draft_length, self.request.max_draft_tokens, self.max_new_tokens - self.num_generated - 1)
        self.draft = self.proposer.propose(limit) if self.num_generated and may_draft else []
        return [replace(row, ids=[*row.ids, *self.draft], num_draft=len(self.draft))]

    def accept(self, rows: list[Row], eos: tuple[int, ...]) -> None:
        """Sample after each draft token until one is rejected."""
        num_accepted, self.pages = 0, None  # generated tokens are not stored in the prefix cache
        logits = rows[0].logits
        assert logits is not None
        logits = logits if self.draft else logits[None]
        for next_logits, draft_token in zip(logits, [*self.draft, None], strict=True):
            self._sample_next(next_logits, eos)
            if self.finish_reason or self.ids[-1] != draft_token:
                break
            num_accepted += 1
            self.num_computed += 1
        for id in self.ids[len(self.proposer.ids) :]:
            self.proposer.append(id)
        if self.draft:
            self.response.num_drafted += len(self.draft)
            self.response.num_accepted += num_accepted
            longer = min(2 * self.draft_length, self.request.max_draft_tokens)
            self.draft_length = longer if num_accepted == len(self.draft) else max(num_accepted, 2)
            assert self.state is not None
            self.state.crop(self.num_computed)


class NgramProposer:
    """Index of the last occurrence of each n-gram of a sequence; drafts are copies of what came after it.

    N-grams of four tokens are tried first, then of three and of two. A copy that reaches the end of the sequence
    continues with its own start, so that periodic text is continued to any length.

    >>> proposer = NgramProposer([7, 1, 2, 3, 9, 1, 2])
    >>> proposer.propose(3)
    [3, 9, 1]
    >>> proposer.append(8)
    >>> proposer.propose(3)
    []
    """

    ngram_sizes = (4, 3, 2)

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.ids: list[int] = []
        self._continuations: dict[tuple[int, ...], int] = {}
        for id in ids:
            self.append(id)

    def append(self, id: int) -> None:
        """Append a token and index the n-grams before it."""
        end = len(self.ids)
        for size in self.ngram_sizes:
            if size <= end:
                self._continuations[tuple(self.ids[end - size :])] = end
        self.ids.append(id)

    def propose(self, max_tokens: int) -> list[int]:
        """Return up to `max_tokens` draft tokens; none if the last n-gram is new."""
        for size in self.ngram_sizes:
            start = self._continuations.get(tuple(self.ids[-size:])) if size <= len(self.ids) else None
            if start is not None:
                period = len(self.ids) - start
                return [self.ids[start + step % period] for step in range(max_tokens)]
        return []
