"""Incremental decoder: ids to text one at a time, without partial UTF-8 characters."""

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peasy.text.tokenizer import Tokenizer

_HALF = "\ufffd"
_PATIENCE = 64


class Stream:
    """Incremental decoder: `push` returns the text that is complete so far, `finish` the rest.

    The concatenated pieces equal `decode` of all ids.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._way: _ByBytes | _ByText = _ByBytes(tokenizer) if tokenizer.byte_level else _ByText(tokenizer)

    def push(self, id: int) -> str:
        """Return the text that this id completes; empty while a character is incomplete."""
        return self._way.push(id)

    def finish(self) -> str:
        """Return the pending text; bytes of an incomplete character become a replacement character."""
        return self._way.finish()


class _ByBytes:
    """Incremental decoder for byte-level tokens, by Python's UTF-8 decoder."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, id: int) -> str:
        return self._decoder.decode(self._tokenizer.to_bytes(id))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _ByText:
    """Incremental decoder for other tokens, whose text depends on their neighbours: the difference of two decodes."""

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
