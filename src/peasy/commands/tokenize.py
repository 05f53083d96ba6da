"""`tokenize`: tokens of a text with ids, character offsets and words."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peasy.checkpoint.hub import Confirm
from peasy.checkpoint.resolve import resolve_model
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.tokenizer import read_tokenizer
from peasy.commands.result import Result
from peasy.errors import NotFound
from peasy.tokenization import Encoding, Tokenizer
from peasy.views.document import Document
from peasy.views.tokens import tokens_document


@dataclass(frozen=True, repr=False)
class TokenizeResult(Result):
    """Tokens of a text: `encoding` has ids, pieces, offsets and words."""

    encoding: Encoding
    tokenizer: Tokenizer
    name: str

    def document(self) -> Document:
        """Return a table with one row per token."""
        return tokens_document(self.encoding, self.name, self.tokenizer.kind, len(self.tokenizer))

    def data(self) -> dict[str, Any]:
        """Return the tokens, the words with their token positions, and the tokenizer's kind and vocabulary size."""
        encoding = self.encoding
        rows = zip(encoding.pieces, encoding.ids, encoding.offsets, encoding.word_ids, strict=True)
        return {
            "text": encoding.text,
            "tokens": [
                {"piece": piece, "id": id, "start": start, "end": end, "word": word}
                for piece, id, (start, end), word in rows
            ],
            "words": [{"text": text, "tokens": list(positions)} for text, positions in encoding.word_groups()],
            "tokenizer": {"name": self.name, "kind": self.tokenizer.kind, "vocab_size": len(self.tokenizer)},
        }

    def __repr__(self) -> str:
        return f"TokenizeResult({' '.join(self.encoding.pieces[:20])})"


def tokenize(model: str | Path, text: str, *, offline: bool = False, confirm: Confirm | None = None) -> TokenizeResult:
    """Tokenize a text with a model's tokenizer. `model` may also be a path to a tokenizer.json.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.tokenization import train_tokenizer
    >>> with TemporaryDirectory() as folder:
    ...     train_tokenizer(["the cat sat on the mat"] * 9, "words").save(f"{folder}/tokenizer.json")
    ...     tokenize(folder, "the cat spoke").encoding.pieces
    ('the', 'cat', '<unk>')
    """
    tokenizer, name = open_tokenizer(model, offline=offline, confirm=confirm)
    return TokenizeResult(tokenizer.encode(text), tokenizer, name)


def open_tokenizer(
    model: str | Path, *, offline: bool = False, confirm: Confirm | None = None
) -> tuple[Tokenizer, str]:
    """Load the tokenizer of a model and its display name, without reading weights."""
    resolved = resolve_model(model, offline=offline, confirm=confirm)
    if resolved.folder.is_file():
        return Tokenizer.load(resolved.folder), resolved.folder.name
    tokenizer = read_tokenizer(SafeFolder(resolved.folder))
    if tokenizer is None:
        raise NotFound(f"{resolved.name} has no tokenizer: {resolved.folder} holds no tokenizer.json.")
    return tokenizer, Path(resolved.name).name if resolved.kind == "path" else resolved.name
