"""Tokenizer section of a GGUF file: tokens, types, merges or scores, special tokens, as llama.cpp reads them."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from peasy.config import JsonDict
from peasy.errors import InvalidInput
from peasy.models.config import DecoderConfig, SpecialTokensConfig

if TYPE_CHECKING:
    from gguf import GGUFWriter

_WHITESPACE_REGEX = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD_REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*" + _WHITESPACE_REGEX
_PRE_TOKENIZERS = {_WORD_REGEX % r"\p{N}{1,3}": "llama-bpe", _WORD_REGEX % r"\p{N}": "qwen2"}
"""Pre-tokenizer regex: llama.cpp's name for it."""

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


def write_tokenizer_section(writer: "GGUFWriter", folder: Path, config: DecoderConfig) -> None:
    """Write the tokenizer in `folder` into the GGUF file; without one, write the model type "no_vocab"."""
    if not (folder / TOKENIZER_FILE).exists():
        writer.add_tokenizer_model("no_vocab")
        return
    safe_folder = SafeFolder(folder)
    settings = safe_folder.read_json(TOKENIZER_CONFIG_FILE) if safe_folder.has(TOKENIZER_CONFIG_FILE) else {}
    try:
        _write_tokenizer_metadata(writer, safe_folder.read_json(TOKENIZER_FILE), settings, config)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInput(f"{TOKENIZER_FILE} is not a valid tokenizer file: {error!r}.") from None


def _write_tokenizer_metadata(
    writer: "GGUFWriter", data: JsonDict, tokenizer_config: JsonDict, config: DecoderConfig
) -> None:
    kind = _tokenizer_model(data)
    tokens, types = _tokens_and_types(data, config.vocab_size)
    writer.add_tokenizer_model(kind)
    if kind == "gpt2":
        writer.add_tokenizer_pre(_pre_tokenizer_name(data))
    writer.add_token_list(tokens)
    if kind == "llama":
        writer.add_token_scores(_scores(data, tokens))
        schemes = [step.get("prepend_scheme", "always") for step in _components(data, "pre_tokenizer", "Metaspace")]
        is_prepended = bool(_components(data, "normalizer", "Prepend"))
        writer.add_add_space_prefix(is_prepended or any(scheme != "never" for scheme in schemes))
    writer.add_token_types(types)
    if kind == "gpt2":
        merges = data["model"]["merges"]
        writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    _write_special_tokens(writer, data, tokenizer_config, config.special_tokens)
    template = tokenizer_config.get("chat_template")
    if isinstance(template, str):
        writer.add_chat_template(template)


def _tokenizer_model(data: JsonDict) -> str:
    """Return llama.cpp's name for the tokenizer model; refuse one that it would read differently."""
    model = data["model"]
    if model.get("type") == "BPE" and model.get("byte_fallback"):
        return "llama"
    if model.get("type") == "BPE" and _components(data, "pre_tokenizer", "ByteLevel"):
        return "gpt2"
    message = f"GGUF does not support a {model.get('type')} tokenizer without a byte fallback."
    raise InvalidInput(message, hint="Train a tokenizer of kind bpe, or export without the tokenizer.")


def _pre_tokenizer_name(data: JsonDict) -> str:
    """Return llama.cpp's name for the pre-tokenizer."""
    unsupported = [step["type"] for step in _components(data, "normalizer") if step["type"] != "NFC"]
    adds_space = any(step.get("add_prefix_space") for step in _components(data, "pre_tokenizer", "ByteLevel"))
    if unsupported or adds_space:
        raise _unsupported_error(f"with {'the normalizer ' + unsupported[0] if unsupported else 'a prefix space'}")
    steps = _components(data, "pre_tokenizer")
    splits = [step["pattern"].get("Regex") for step in steps if step["type"] == "Split"]
    by_bytes = any(step.get("use_regex", True) for step in steps if step["type"] == "ByteLevel")
    digits = any(step["type"] == "Digits" and step.get("individual_digits") for step in steps)
    if len(steps) == 1 and by_bytes:
        return "gpt-2"
    if len(steps) == 2 and by_bytes and digits:
        return "smollm"
    if len(steps) == 2 and not by_bytes and len(splits) == 1 and splits[0] in _PRE_TOKENIZERS:
        return _PRE_TOKENIZERS[splits[0]]
    raise _unsupported_error("with an unknown pre-tokenizer")


def _unsupported_error(reason: str) -> InvalidInput:
    return InvalidInput(f"GGUF does not support a tokenizer {reason}.", hint="Export without the tokenizer.")


def _components(data: JsonDict, part: str, kind: str | None = None) -> list[JsonDict]:
    """Return the components of one part of the tokenizer, a single one or a Sequence."""
    step = data.get(part)
    if step is None:
        return []
    key = {"pre_tokenizer": "pretokenizers", "normalizer": "normalizers", "post_processor": "processors"}[part]
    components = step[key] if step["type"] == "Sequence" else [step]
    return [component for component in components if kind is None or component["type"] == kind]


def _tokens_and_types(data: JsonDict, vocab_size: int) -> tuple[list[str], list[int]]:
    """Return token and token type of each id; embedding rows without a token become [PADn]."""
    names = {id: token for token, id in data["model"]["vocab"].items()}
    added = {token["id"]: token for token in data.get("added_tokens", [])}
    names |= {id: token["content"] for id, token in added.items()}
    if max(names) >= vocab_size:
        sizes = f"ids up to {max(names)}, but the model's vocabulary size is {vocab_size}"
        raise InvalidInput(f"The tokenizer has {sizes}.")
    unknown = data["model"].get("unk_token")

    def token_type(id: int) -> int:
        if id not in names:
            return _UNUSED
        if id in added:
            return _UNKNOWN if names[id] == unknown else _CONTROL if added[id]["special"] else _USER_DEFINED
        return _BYTE if data["model"].get("byte_fallback") and _BYTE_TOKEN.fullmatch(names[id]) else _NORMAL

    return [names.get(id, f"[PAD{id}]") for id in range(vocab_size)], [token_type(id) for id in range(vocab_size)]


def _scores(data: JsonDict, tokens: list[str]) -> list[float]:
    """Return a score per token: earlier merges score higher; tokens that no merge produces score 0."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(data["model"]["merges"]):
        ranks.setdefault("".join(merge.split(" ", 1) if isinstance(merge, str) else merge), rank)
    return [-float(ranks.get(token, 0)) for token in tokens]


def _write_special_tokens(
    writer: "GGUFWriter", data: JsonDict, tokenizer_config: JsonDict, special: SpecialTokensConfig
) -> None:
    """Write the special token ids, from the model config or else the tokenizer, and whether bos and eos are added."""
    ids = {token["content"]: token["id"] for token in data.get("added_tokens", [])}
    special_ids = {"bos": special.bos, "eos": special.eos[0] if special.eos else None}
    for role, id in {**special_ids, "pad": special.pad, "unk": special.unk}.items():
        token = tokenizer_config.get(f"{role}_token")
        name = token.get("content") if isinstance(token, dict) else token
        special_ids[role] = ids.get(name) if id is None else id
        if special_ids[role] is not None:
            getattr(writer, f"add_{role}_token_id")(special_ids[role])
    steps = _components(data, "post_processor", "TemplateProcessing")
    template = steps[0]["single"] if steps else []
    template_ids = [ids.get(next(iter(item.values()))["id"]) for item in template] or [None]
    writer.add_add_bos_token(template_ids[0] is not None and template_ids[0] == special_ids["bos"])
    writer.add_add_eos_token(template_ids[-1] is not None and template_ids[-1] == special_ids["eos"])
