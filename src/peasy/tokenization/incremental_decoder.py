"""Incremental decoder: ids to text one at a time, without partial UTF-8 characters."""

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peasy.tokenization.tokenizer import Tokenizer

_REPLACEMENT_CHAR = "\ufffd"
_MAX_PENDING = 64


class IncrementalDecoder:
    """Incremental decoder: `push` returns the text that is complete so far, `finish` the rest.

    The concatenated pieces equal `decode` of all ids.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._decoder: _ByteDecoder | _TextDecoder = (
            _ByteDecoder(tokenizer) if tokenizer.byte_level else _TextDecoder(tokenizer)
        )

    def push(self, id: int) -> str:
        """Return the text that this id completes; empty while a character is incomplete."""
        return self._decoder.push(id)

    def finish(self) -> str:
        """Return the pending text; bytes of an incomplete character become a replacement character."""
        return self._decoder.finish()


class _ByteDecoder:
    """Incremental decoder for byte-level tokens, by Python's UTF-8 decoder."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, id: int) -> str:
        return self._decoder.decode(self._tokenizer.to_bytes(id))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _TextDecoder:
    """Incremental decoder for other tokens, whose text depends on their neighbours: the difference of two decodes."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._num_emitted = 0

    def push(self, id: int) -> str:
        self._ids.append(id)
        text = self._tokenizer.decode(self._ids)
        if text.endswith(_REPLACEMENT_CHAR) and len(self._ids) - self._num_emitted < _MAX_PENDING:
            return ""
        return self._emit(text)

    def finish(self) -> str:
        return self._emit(self._tokenizer.decode(self._ids))

    def _emit(self, text: str) -> str:
        before = self._tokenizer.decode(self._ids[: self._num_emitted])
        self._ids = self._ids[self._num_emitted :] if text != before else self._ids
        if text == before:
            return ""
        self._num_emitted = len(self._ids)
        return text[len(before) :]
