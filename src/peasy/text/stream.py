"""Ids into text while they arrive; half a character waits for its other half."""

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peasy.text.tokenizer import Tokenizer

_HALF = "\ufffd"
_PATIENCE = 64


class Stream:
    """Takes ids one at a time and gives the text that has become certain; `finish` gives the rest.

    All pieces together are what `decode` makes of all ids together.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._way: _ByBytes | _ByText = _ByBytes(tokenizer) if tokenizer.byte_level else _ByText(tokenizer)

    def push(self, id: int) -> str:
        """The text that this id completes; empty while a character is not whole."""
        return self._way.push(id)

    def finish(self) -> str:
        """What was still waiting; bytes that never became a character come as a replacement sign."""
        return self._way.finish()


class _ByBytes:
    """Byte-level tokens are bytes: the decoder of the language itself knows where characters end."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, id: int) -> str:
        return self._decoder.decode(self._tokenizer.to_bytes(id))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _ByText:
    """Other tokens mean something only beside their neighbour: what a new one adds is the difference of two texts."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._said = 0

    def push(self, id: int) -> str:
        self._ids.append(id)
        text = self._tokenizer.decode(self._ids)
        if text.endswith(_HALF) and len(self._ids) - self._said < _PATIENCE:
            return ""
        return self._emit(text)

    def finish(self) -> str:
        return self._emit(self._tokenizer.decode(self._ids))

    def _emit(self, text: str) -> str:
        before = self._tokenizer.decode(self._ids[: self._said])
        self._ids = self._ids[self._said :] if text != before else self._ids
        if text == before:
            return ""
        self._said = len(self._ids)
        return text[len(before) :]
