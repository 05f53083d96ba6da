"""The tokenizer that lies beside a model's weights, in whichever form it came."""

from peasy.checkpoint.folder import Folder
from peasy.checkpoint.store import TARGET, TOKENIZER
from peasy.errors import InvalidInput
from peasy.text import Tokenizer, from_sentencepiece

SETTINGS = "tokenizer_config.json"


def read_tokenizer(folder: Folder) -> Tokenizer | None:
    """The tokenizer of a folder: tokenizer.json, or Marian's source.spm with its vocab.json, or none."""
    if folder.has(TOKENIZER):
        return _read(folder, TOKENIZER, SETTINGS)
    if folder.has("source.spm"):
        return _read_pieces(folder, "source.spm")
    return None


def read_target_tokenizer(folder: Folder) -> Tokenizer | None:
    """The tokenizer of a translator's answers, where it is another one than that of its sources."""
    if folder.has(TARGET):
        return _read(folder, TARGET, "target_" + SETTINGS)
    if folder.has("target.spm"):
        return _read_pieces(folder, "target.spm")
    return None


def _read(folder: Folder, name: str, settings: str) -> Tokenizer:
    beside = folder.read(settings) if folder.has(settings) else None
    return Tokenizer.from_json(folder.read(name), beside, where=folder.path / name)


def _read_pieces(folder: Folder, name: str) -> Tokenizer:
    words = "target_vocab.json" if name.startswith("target") and folder.has("target_vocab.json") else "vocab.json"
    vocabulary = folder.read_json(words)
    if not all(type(id) is int for id in vocabulary.values()):
        raise InvalidInput(f"{folder.path / words} should give each piece its id.")
    try:
        return from_sentencepiece(folder.read(name), vocabulary)
    except InvalidInput as error:
        raise InvalidInput(f"{folder.path / name}: {error.message}", hint=error.hint) from None
