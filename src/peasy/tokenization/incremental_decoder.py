"""Incremental decoder: ids to text one at a time, without partial UTF-8 characters."""

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peasy.tokenization.tokenizer import Tokenizer

_REPLACEMENT_CHAR = "\ufffd"
_MAX_PENDING = 64


class IncrementalDecoder:
    """Incremental decoder: `push` returns the text that is complete so far, `finish` the rest.

    The concatenated pieces equal `decode` of all ids. Byte-level tokens are decoded by Python's UTF-8 decoder; the text
    of others depends on their neighbours: it is the difference of two decodes.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer, self._num_emitted = tokenizer, 0
        self._ids: list[int] = []
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace") if tokenizer.byte_level else None

    def push(self, id: int) -> str:
        """Return the text that this id completes; empty while a character is incomplete."""
        if self._utf8 is not None:
            return self._utf8.decode(self._tokenizer.to_bytes(id))
        self._ids.append(id)
        text = self._tokenizer.decode(self._ids)
        is_partial = text.endswith(_REPLACEMENT_CHAR) and len(self._ids) - self._num_emitted < _MAX_PENDING
        return "" if is_partial else self._emit(text)

    def finish(self) -> str:
        """Return the pending text; bytes of an incomplete character become a replacement character."""
        if self._utf8 is not None:
            return self._utf8.decode(b"", final=True)
        return self._emit(self._tokenizer.decode(self._ids))

    def _emit(self, text: str) -> str:
        before = self._tokenizer.decode(self._ids[: self._num_emitted])
        if text == before:
            return ""
        self._ids = self._ids[self._num_emitted :]
        self._num_emitted = len(self._ids)
        return text[len(before) :]
