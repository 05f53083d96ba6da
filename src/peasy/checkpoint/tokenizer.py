"""Load the tokenizer of a model folder: tokenizer.json, SentencePiece, vocab.json with merges.txt, or vocab.txt."""

from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import CONFIG_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from peasy.errors import InvalidInput
from peasy.tokenization import Tokenizer, from_merges, from_sentencepiece, from_vocab_txt
from peasy.tokenization.tokenizer import CLEAN_UP
from peasy.tokenization.tokenizer_classes import choose_tokenizer_class
from peasy.tokenization.tokenizer_validation import JsonDict

_SENTENCEPIECE_FILES = ("source.spm", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
_SOURCE_FILES = (TOKENIZER_FILE, *_SENTENCEPIECE_FILES, "merges.txt", "vocab.txt")
_RECIPE_FILE, _CHAT_TEMPLATE_FILE = "recipe.json", "chat_template.jinja"
_TARGET_FILES = (TARGET_TOKENIZER_FILE, "target.spm")
"""Tokenizer files by precedence: the first one that exists is read."""


def read_tokenizer(folder: SafeFolder, *, target: bool = False) -> Tokenizer | None:
    """Return the tokenizer of a folder, from tokenizer.json or an older format; None if there is none.

    `target`: that of the target side of a translation model, if it is a separate one.
    """
    name = next((name for name in (_TARGET_FILES if target else _SOURCE_FILES) if folder.has(name)), None)
    if name is None:
        return None
    try:
        tokenizer = _read_file(folder, name)
        if not target and folder.has(_CHAT_TEMPLATE_FILE):
            template = folder.read(_CHAT_TEMPLATE_FILE).decode("utf-8", errors="replace")
            tokenizer = tokenizer.with_chat_template(template)
        return tokenizer if target else _with_bos_of_documents(tokenizer, folder)
    except InvalidInput as error:
        message = error.message if str(folder.path) in error.message else f"{folder.path / name}: {error.message}"
        raise InvalidInput(message, hint=error.hint) from None


def _with_bos_of_documents(tokenizer: Tokenizer, folder: SafeFolder) -> Tokenizer:
    """Return the tokenizer of a model trained on whole documents, each after its bos token.

    New runs have it in their tokenizer.json; for older ones the recipe says it.
    """
    run = next((run for run in (folder.path, folder.path.parent.parent) if (run / _RECIPE_FILE).is_file()), None)
    eos = tokenizer.special_tokens.eos
    if run is None or eos is None or any(tokenizer.added_ids):
        return tokenizer
    recipe = SafeFolder(run).read_json(_RECIPE_FILE)
    objective = recipe.get("objective")
    is_next_token = isinstance(objective, dict) and objective.get("kind") == "next-token"
    return tokenizer.with_bos(eos) if is_next_token and recipe.get("sample_unit") == "documents" else tokenizer


def _read_file(folder: SafeFolder, name: str) -> Tokenizer:
    data = folder.read(name)
    if name.endswith(".spm"):
        separate = name == "target.spm" and folder.has("target_vocab.json")
        clean_up = _read_if_present(folder, TOKENIZER_CONFIG_FILE).get(CLEAN_UP)
        pieces = _read_vocab(folder, "target_vocab.json" if separate else "vocab.json")
        return from_sentencepiece(data, pieces, {CLEAN_UP: True} if clean_up else None)
    config = _read_config(folder, name.replace(TOKENIZER_FILE, TOKENIZER_CONFIG_FILE))
    if name.endswith(TOKENIZER_FILE):
        return Tokenizer.from_json(data, config, source=folder.path / name)
    if name.endswith(".model"):
        vocabulary = _read_vocab(folder) if config.get("tokenizer_class") == "M2M100Tokenizer" else None
        return from_sentencepiece(data, vocabulary, config)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{folder.path / name} is not UTF-8 text.") from None
    return from_vocab_txt(text, config) if name == "vocab.txt" else from_merges(_read_vocab(folder), text, config)


def _read_config(folder: SafeFolder, name: str) -> JsonDict:
    """Return tokenizer_config.json, with special tokens of older files and the class that transformers chooses."""
    config = _read_if_present(folder, name if name.endswith(TOKENIZER_CONFIG_FILE) else TOKENIZER_CONFIG_FILE)
    if "added_tokens_decoder" not in config:
        config |= _read_if_present(folder, "special_tokens_map.json")
        named = [config.get("additional_special_tokens") or [], config.get("extra_special_tokens") or []]
        special = {str(token) for tokens in named if isinstance(tokens, list) for token in tokens}
        if added := _read_if_present(folder, "added_tokens.json"):
            config["added_tokens_decoder"] = {
                str(id): {"content": token, "normalized": token not in special, "special": token in special}
                for token, id in added.items()
            }
    model_config = _read_if_present(folder, CONFIG_FILE)
    if (config.keys() | model_config.keys()).isdisjoint(("model_type", "tokenizer_class")):
        return config  # of peasy: no class of transformers
    chosen = choose_tokenizer_class(config, model_config)
    return config | ({} if chosen is None else {"tokenizer_class": chosen})


def _read_if_present(folder: SafeFolder, name: str) -> JsonDict:
    return folder.read_json(name) if folder.has(name) else {}


def _read_vocab(folder: SafeFolder, name: str = "vocab.json") -> dict[str, int]:
    vocabulary = folder.read_json(name)
    if not all(type(id) is int for id in vocabulary.values()):
        raise InvalidInput(f"{folder.path / name} should map each piece to an integer id.")
    return vocabulary
