"""N-gram proposer for speculative decoding (prompt lookup): drafts what followed the last n-gram before."""

from collections.abc import Iterable


class NgramProposer:
    """Index of the last occurrence of each n-gram of a sequence; drafts are copies of what came after it.

    N-grams of `max_ngram` tokens are tried first, then shorter ones down to `min_ngram`. A copy that reaches the end of
    the sequence continues with its own start, so that periodic text is continued to any length.

    >>> proposer = NgramProposer([7, 1, 2, 3, 9, 1, 2], min_ngram=2)
    >>> proposer.propose(3)
    [3, 9, 1]
    >>> proposer.append(8)
    >>> proposer.propose(3)
    []
    """

    def __init__(self, ids: Iterable[int] = (), *, max_ngram: int = 4, min_ngram: int = 2) -> None:
        self.ngram_sizes = range(max_ngram, min_ngram - 1, -1)
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
                return self._copy(start, max_tokens)
        return []

    def _copy(self, start: int, max_tokens: int) -> list[int]:
        period = len(self.ids) - start
        return [self.ids[start + step % period] for step in range(max_tokens)]
