"""Load the tokenizer of a model folder: tokenizer.json, SentencePiece, vocab.json with merges.txt, or vocab.txt."""

from collections.abc import Callable
from typing import Any

from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import TARGET_TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from peasy.errors import InvalidInput
from peasy.tokenization import Tokenizer, from_merges, from_sentencepiece, from_vocab_txt


def read_tokenizer(folder: SafeFolder) -> Tokenizer | None:
    """Return the tokenizer of a folder, from tokenizer.json or an older format; None if there is none."""
    for name, read in _READERS.items():
        if folder.has(name):
            return _read_naming_file(read, folder, name)
    return None


def read_target_tokenizer(folder: SafeFolder) -> Tokenizer | None:
    """Return the target-side tokenizer of a translation model, if it is a separate one."""
    if folder.has(TARGET_TOKENIZER_FILE):
        return _read_naming_file(_read_json, folder, TARGET_TOKENIZER_FILE)
    return _read_naming_file(_read_sentencepiece, folder, "target.spm") if folder.has("target.spm") else None


def _read_naming_file(read: Callable[[SafeFolder, str], Tokenizer], folder: SafeFolder, name: str) -> Tokenizer:
    try:
        return read(folder, name)
    except InvalidInput as error:
        where = str(folder.path / name)
        message = error.message if str(folder.path) in error.message else f"{where}: {error.message}"
        raise InvalidInput(message, hint=error.hint) from None


def _read_json(folder: SafeFolder, name: str) -> Tokenizer:
    config_file = name.replace(TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)
    return Tokenizer.from_json(
        folder.read(name), folder.read(config_file) if folder.has(config_file) else None, source=folder.path / name
    )


def _read_sentencepiece(folder: SafeFolder, name: str) -> Tokenizer:
    vocab_file = "target_vocab.json" if name.startswith("target") and folder.has("target_vocab.json") else "vocab.json"
    return from_sentencepiece(folder.read(name), _read_vocab(folder, vocab_file))


def _read_sentencepiece_without_vocab(folder: SafeFolder, name: str) -> Tokenizer:
    return from_sentencepiece(folder.read(name))


def _read_merges(folder: SafeFolder, name: str) -> Tokenizer:
    return from_merges(_read_vocab(folder, "vocab.json"), _read_text(folder, name), _read_config(folder))


def _read_wordpiece(folder: SafeFolder, name: str) -> Tokenizer:
    return from_vocab_txt(_read_text(folder, name), _read_config(folder))


_READERS: dict[str, Callable[[SafeFolder, str], Tokenizer]] = {
    TOKENIZER_FILE: _read_json,
    "source.spm": _read_sentencepiece,
    "spiece.model": _read_sentencepiece_without_vocab,
    "merges.txt": _read_merges,
    "vocab.txt": _read_wordpiece,
}
"""Reader for each tokenizer file name; the first file that exists is read."""


def _read_config(folder: SafeFolder) -> dict[str, Any]:
    return folder.read_json(TOKENIZER_CONFIG_FILE) if folder.has(TOKENIZER_CONFIG_FILE) else {}


def _read_text(folder: SafeFolder, name: str) -> str:
    try:
        return folder.read(name).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{folder.path / name} is not UTF-8 text.") from None


def _read_vocab(folder: SafeFolder, name: str) -> dict[str, int]:
    vocabulary = folder.read_json(name)
    if not all(type(id) is int for id in vocabulary.values()):
        raise InvalidInput(f"{folder.path / name} should map each piece to an integer id.")
    return vocabulary
