"""Incremental detokenizer with stop strings, found across token boundaries."""

from peasy.text import Tokenizer


class Teller:
    """Incremental detokenizer: returns completed text and holds back what may start a stop string."""

    def __init__(self, tokenizer: Tokenizer | None, stop: tuple[str, ...] = ()) -> None:
        self._stream = None if tokenizer is None else tokenizer.stream()
        self._stop, self._held = stop, ""

    def push(self, id: int) -> tuple[str, bool]:
        """Return the text completed by this id, and True if a stop string was found (it is left out)."""
        return ("", False) if self._stream is None else self._sift(self._stream.push(id))

    def finish(self) -> str:
        """Return the remaining text."""
        if self._stream is None:
            return ""
        text, stopped = self._sift(self._stream.finish())
        return text if stopped else text + self._held

    def _sift(self, text: str) -> tuple[str, bool]:
        self._held += text
        starts = [start for start in (self._held.find(stop) for stop in self._stop) if start >= 0]
        if starts:
            released, self._held = self._held[: min(starts)], ""
            return released, True
        keep = max((_overlap(self._held, stop) for stop in self._stop), default=0)
        released, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return released, False


def _overlap(text: str, stop: str) -> int:
    """Return the number of trailing characters that may start the stop string."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
