"""`tokenize`: a text into the tokens of a model, with ids, offsets and words."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peasy.checkpoint.folder import Folder
from peasy.checkpoint.hub import Ask
from peasy.checkpoint.resolve import resolve
from peasy.checkpoint.tokenizer import read_tokenizer
from peasy.errors import NotFound
from peasy.text import Encoding, Tokenizer
from peasy.views.document import Document
from peasy.views.tokens import tokens_document
from peasy.workbench.result import Result


@dataclass(frozen=True, repr=False)
class TokenizeResult(Result):
    """The tokens of a text: `encoding` has ids, pieces, offsets and words."""

    encoding: Encoding
    tokenizer: Tokenizer
    name: str

    def document(self) -> Document:
        """One row for each token."""
        return tokens_document(self.encoding, self.name, self.tokenizer.kind, len(self.tokenizer))

    def data(self) -> dict[str, Any]:
        """The tokens, the words with the places of their tokens, and what the tokenizer is."""
        found = self.encoding
        rows = zip(found.pieces, found.ids, found.offsets, found.words, strict=True)
        return {
            "text": found.text,
            "tokens": [
                {"piece": piece, "id": id, "start": start, "end": end, "word": word}
                for piece, id, (start, end), word in rows
            ],
            "words": [{"text": text, "tokens": list(places)} for text, places in found.groups()],
            "tokenizer": {"name": self.name, "kind": self.tokenizer.kind, "vocabulary": len(self.tokenizer)},
        }

    def __repr__(self) -> str:
        return f"TokenizeResult({' '.join(self.encoding.pieces[:20])})"


def tokenize(model: str | Path, text: str, *, offline: bool = False, ask: Ask | None = None) -> TokenizeResult:
    """The tokens that a model makes of a text. `model` may also be a bare tokenizer.json.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.text import train
    >>> with TemporaryDirectory() as folder:
    ...     train(["the cat sat on the mat"] * 9, "words").save(f"{folder}/tokenizer.json")
    ...     tokenize(folder, "the cat spoke").encoding.pieces
    ('the', 'cat', '<unk>')
    """
    tokenizer, name = open_tokenizer(model, offline=offline, ask=ask)
    return TokenizeResult(tokenizer.encode(text), tokenizer, name)


def open_tokenizer(model: str | Path, *, offline: bool = False, ask: Ask | None = None) -> tuple[Tokenizer, str]:
    """The tokenizer of a model, and the name it is shown under; the weights are not touched."""
    found = resolve(model, offline=offline, ask=ask)
    if found.folder.is_file():
        return Tokenizer.load(found.folder), found.folder.name
    tokenizer = read_tokenizer(Folder(found.folder))
    if tokenizer is None:
        raise NotFound(f"{found.name} has no tokenizer: {found.folder} holds no tokenizer.json.")
    return tokenizer, Path(found.name).name if found.kind == "path" else found.name
