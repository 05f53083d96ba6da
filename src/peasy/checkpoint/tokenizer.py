"""Load the tokenizer of a model folder: tokenizer.json, SentencePiece, vocab.json with merges.txt, or vocab.txt."""

from collections.abc import Callable
from typing import Any

from peasy.checkpoint.folder import Folder
from peasy.checkpoint.store import TARGET, TOKENIZER
from peasy.errors import InvalidInput
from peasy.text import Tokenizer, from_merges, from_sentencepiece, from_words

SETTINGS = "tokenizer_config.json"


def read_tokenizer(folder: Folder) -> Tokenizer | None:
    """Return the tokenizer of a folder, from tokenizer.json or an older format; None if there is none."""
    for name, read in _FORMS.items():
        if folder.has(name):
            return _named(read, folder, name)
    return None


def read_target_tokenizer(folder: Folder) -> Tokenizer | None:
    """Return the target-side tokenizer of a translation model, if it is a separate one."""
    if folder.has(TARGET):
        return _named(_read_json, folder, TARGET)
    return _named(_read_pieces, folder, "target.spm") if folder.has("target.spm") else None


def _named(read: Callable[[Folder, str], Tokenizer], folder: Folder, name: str) -> Tokenizer:
    try:
        return read(folder, name)
    except InvalidInput as error:
        where = str(folder.path / name)
        message = error.message if str(folder.path) in error.message else f"{where}: {error.message}"
        raise InvalidInput(message, hint=error.hint) from None


def _read_json(folder: Folder, name: str) -> Tokenizer:
    config_file = name.replace(TOKENIZER, SETTINGS)
    return Tokenizer.from_json(
        folder.read(name), folder.read(config_file) if folder.has(config_file) else None, where=folder.path / name
    )


def _read_pieces(folder: Folder, name: str) -> Tokenizer:
    vocab_file = "target_vocab.json" if name.startswith("target") and folder.has("target_vocab.json") else "vocab.json"
    return from_sentencepiece(folder.read(name), _read_ids(folder, vocab_file))


def _read_own_pieces(folder: Folder, name: str) -> Tokenizer:
    return from_sentencepiece(folder.read(name))


def _read_merges(folder: Folder, name: str) -> Tokenizer:
    return from_merges(_read_ids(folder, "vocab.json"), _read_text(folder, name), _settings(folder))


def _read_words(folder: Folder, name: str) -> Tokenizer:
    return from_words(_read_text(folder, name), _settings(folder))


_FORMS: dict[str, Callable[[Folder, str], Tokenizer]] = {
    TOKENIZER: _read_json,
    "source.spm": _read_pieces,
    "spiece.model": _read_own_pieces,
    "merges.txt": _read_merges,
    "vocab.txt": _read_words,
}
"""Reader for each tokenizer file name; the first file that exists is read."""


def _settings(folder: Folder) -> dict[str, Any]:
    return folder.read_json(SETTINGS) if folder.has(SETTINGS) else {}


def _read_text(folder: Folder, name: str) -> str:
    try:
        return folder.read(name).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{folder.path / name} is not UTF-8 text.") from None


def _read_ids(folder: Folder, name: str) -> dict[str, int]:
    vocabulary = folder.read_json(name)
    if not all(type(id) is int for id in vocabulary.values()):
        raise InvalidInput(f"{folder.path / name} should map each piece to an integer id.")
    return vocabulary
