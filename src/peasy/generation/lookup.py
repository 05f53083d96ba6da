"""Guessing the next tokens from the text itself: what followed the last time the same few tokens stood there."""

from collections.abc import Iterable


class Lookup:
    """Remembers where every few tokens of a text stood last, and copies what came after them.

    `longest` tokens are looked for first, then fewer, down to `shortest`. A copy that reaches the end of the text goes
    on in itself, so that a text that repeats is continued as far as asked.

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
        """The text goes on with this token: now it is known what comes after the tokens before it."""
        end = len(self.ids)
        for size in self.sizes:
            if size <= end:
                self._after[tuple(self.ids[end - size :])] = end
        self.ids.append(id)

    def guess(self, most: int) -> list[int]:
        """Up to `most` tokens that may come next; none where the last tokens are new."""
        for size in self.sizes:
            start = self._after.get(tuple(self.ids[-size:])) if size <= len(self.ids) else None
            if start is not None:
                return self._copy(start, most)
        return []

    def _copy(self, start: int, most: int) -> list[int]:
        period = len(self.ids) - start
        return [self.ids[start + step % period] for step in range(most)]
