"""Ids into text while they are written, with stop texts found wherever tokens begin and end."""

from peasy.text import Tokenizer


class Teller:
    """Gives the text that has become certain; what may be the beginning of a stop text waits."""

    def __init__(self, tokenizer: Tokenizer | None, stop: tuple[str, ...] = ()) -> None:
        self._stream = None if tokenizer is None else tokenizer.stream()
        self._stop, self._held = stop, ""

    def push(self, id: int) -> tuple[str, bool]:
        """The text that this id makes certain, and whether a stop text has come: it and what follows are left out."""
        return ("", False) if self._stream is None else self._sift(self._stream.push(id))

    def finish(self) -> str:
        """What was still waiting."""
        if self._stream is None:
            return ""
        text, stopped = self._sift(self._stream.finish())
        return text if stopped else text + self._held

    def _sift(self, text: str) -> tuple[str, bool]:
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stop) if at >= 0]
        if found:
            said, self._held = self._held[: min(found)], ""
            return said, True
        keep = max((_overlap(self._held, stop) for stop in self._stop), default=0)
        said, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return said, False


def _overlap(text: str, stop: str) -> int:
    """How many of the last characters may be the first of a stop text."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
