"""Incremental detokenizer with stop strings, found across token boundaries."""

from peasy.tokenization import Tokenizer


class Detokenizer:
    """Incremental detokenizer: returns completed text and holds back what may start a stop string."""

    def __init__(self, tokenizer: Tokenizer | None, stop: tuple[str, ...] = ()) -> None:
        self._decoder = None if tokenizer is None else tokenizer.incremental_decoder()
        self._stop_strings, self._pending = stop, ""

    def push(self, id: int) -> tuple[str, bool]:
        """Return the text completed by this id, and True if a stop string was found (it is left out)."""
        return ("", False) if self._decoder is None else self._release(self._decoder.push(id))

    def finish(self) -> str:
        """Return the remaining text."""
        if self._decoder is None:
            return ""
        text, stopped = self._release(self._decoder.finish())
        return text if stopped else text + self._pending

    def _release(self, text: str) -> tuple[str, bool]:
        self._pending += text
        starts = [start for start in (self._pending.find(stop) for stop in self._stop_strings) if start >= 0]
        if starts:
            released, self._pending = self._pending[: min(starts)], ""
            return released, True
        keep = max((_stop_prefix_length(self._pending, stop) for stop in self._stop_strings), default=0)
        released, self._pending = self._pending[: len(self._pending) - keep], self._pending[len(self._pending) - keep :]
        return released, False


def _stop_prefix_length(text: str, stop: str) -> int:
    """Return the number of trailing characters that may start the stop string."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
