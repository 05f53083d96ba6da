"""N-gram proposer for speculative decoding (prompt lookup): drafts what followed the last n-gram before."""

from collections.abc import Iterable


class Lookup:
    """Index of the last occurrence of each n-gram of a sequence; drafts are copies of what came after it.

    N-grams of `max_ngram` tokens are tried first, then shorter ones down to `min_ngram`. A copy that reaches the end of
    the sequence continues with its own start, so that periodic text is continued to any length.

    >>> lookup = Lookup([7, 1, 2, 3, 9, 1, 2], shortest=2)
    >>> lookup.guess(3)
    [3, 9, 1]
    >>> lookup.push(8)
    >>> lookup.guess(3)
    []
    """

    def __init__(self, ids: Iterable[int] = (), *, longest: int = 4, shortest: int = 2) -> None:
        self.sizes = range(longest, shortest - 1, -1)
        self.ids: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        for id in ids:
            self.push(id)

    def push(self, id: int) -> None:
        """Append a token and index the n-grams before it."""
        end = len(self.ids)
        for size in self.sizes:
            if size <= end:
                self._after[tuple(self.ids[end - size :])] = end
        self.ids.append(id)

    def guess(self, most: int) -> list[int]:
        """Return up to `max_tokens` draft tokens; none if the last n-gram is new."""
        for size in self.sizes:
            start = self._after.get(tuple(self.ids[-size:])) if size <= len(self.ids) else None
            if start is not None:
                return self._copy(start, most)
        return []

    def _copy(self, start: int, most: int) -> list[int]:
        period = len(self.ids) - start
        return [self.ids[start + step % period] for step in range(most)]
