"""`tokenize`: tokens of a text with ids, character offsets and words."""

from pathlib import Path

from peasy.checkpoint.hub import Confirm
from peasy.checkpoint.loaded_model import ModelBundle
from peasy.checkpoint.paths import resolve_model
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.tokenizer import read_tokenizer
from peasy.commands.result import JsonDict, Result
from peasy.errors import NotFound
from peasy.tokenization import Encoding, Tokenizer
from peasy.views.document import Document, Paragraph, Table, pluralize, short_title

_MAX_TOKENS = 500
"""Maximum number of tokens shown."""


class TokenizeResult(Result):
    """Tokens of a text: `encoding` has ids, pieces, offsets and words."""

    encoding: Encoding
    tokenizer: Tokenizer
    name: str

    def document(self) -> Document:
        """Return a table with one row per token, truncated with a note if the text is long."""
        encoding, count = self.encoding, len(self.encoding)
        rows = []
        for position, (start, end) in enumerate(encoding.offsets[:_MAX_TOKENS]):
            # As text, so that ids and positions are not formatted with decimals.
            token_id, word = str(encoding.ids[position]), encoding.word_ids[position]
            where = f"{start}–{end}" if end > start else ""
            rows.append((str(position), encoding.pieces[position], token_id, where, "" if word is None else str(word)))
        sizes = (count, "token"), (len(encoding.word_groups()), "word"), (len(encoding.text), "character")
        tokens, words, characters = (pluralize(*size) for size in sizes)
        cut = f"Only the first {_MAX_TOKENS} of {count:,} tokens are shown; --json has them all."
        size = f"{self.tokenizer.kind}, {len(self.tokenizer):,} ids"
        about = f"Tokenizer of {self.name}: {size}. · is a space, ⏎ a newline."
        notes = (Paragraph(note, "note") for note in ([cut] if count > _MAX_TOKENS else []) + [about])
        table = Table(("position", "piece", "id", "characters", "word"), tuple(rows))
        counts = Paragraph(f"{tokens} for {words}, {characters}.")
        return Document(short_title(encoding.text), (counts, table, *notes))

    def data(self) -> JsonDict:
        """Return the tokens, the words with their token positions, and the tokenizer's kind and vocabulary size."""
        encoding = self.encoding
        rows = zip(encoding.pieces, encoding.ids, encoding.offsets, encoding.word_ids, strict=True)
        keys = ("piece", "id", "start", "end", "word")
        return {
            "text": encoding.text,
            "tokens": [dict(zip(keys, (piece, id, *span, word), strict=True)) for piece, id, span, word in rows],
            "words": [{"text": text, "tokens": list(positions)} for text, positions in encoding.word_groups()],
            "tokenizer": {"name": self.name, "kind": self.tokenizer.kind, "vocab_size": len(self.tokenizer)},
        }

    def __repr__(self) -> str:
        return f"TokenizeResult({' '.join(self.encoding.pieces[:20])})"


def tokenize(
    model: str | Path | ModelBundle,
    text: str,
    *,
    add_special_tokens: bool = True,
    offline: bool = False,
    confirm: Confirm | None = None,
) -> TokenizeResult:
    """Tokenize a text with a model's tokenizer; its weights are not read.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id; a tokenizer.json file, or a loaded model.
        text: Text to tokenize.
        add_special_tokens: Add the special tokens that the model expects around a text, such as <bos>.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.tokenization import train_tokenizer
    >>> with TemporaryDirectory() as folder:
    ...     train_tokenizer(["the cat sat on the mat"] * 9, "words").save(f"{folder}/tokenizer.json")
    ...     tokenize(folder, "the cat spoke").encoding.pieces
    ('the', 'cat', '<unk>')
    """
    if isinstance(model, ModelBundle):
        encoding = model.encode_text(text, add_special_tokens=add_special_tokens)
        return TokenizeResult(encoding, model.require_tokenizer(), model.name)
    resolved = resolve_model(model, offline=offline, confirm=confirm)
    folder, name = resolved.folder, Path(resolved.name).name if resolved.kind == "path" else resolved.name
    tokenizer = Tokenizer.load(folder) if folder.is_file() else read_tokenizer(SafeFolder(folder))
    if tokenizer is None:
        raise NotFound(f"{resolved.name} has no tokenizer: {folder} holds no tokenizer.json.")
    return TokenizeResult(tokenizer.encode(text, add_special_tokens=add_special_tokens), tokenizer, name)
