"""The tokenizer inside a GGUF file: pieces, merges and how a text is cut before them."""

import re
from pathlib import Path
from typing import Any

from peasy.checkpoint.folder import Folder
from peasy.checkpoint.store import TOKENIZER
from peasy.errors import InvalidInput
from peasy.models.config import DecoderConfig, Special

SETTINGS = "tokenizer_config.json"
_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_MODERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL
PATTERNS = {_MODERN % r"\p{N}{1,3}": "llama-bpe", _MODERN % r"\p{N}": "qwen2"}
"""How a text is cut into words, and what llama.cpp calls that."""

NORMAL, UNKNOWN, CONTROL, OWN, UNUSED, BYTE = range(1, 7)
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def write_words(writer: Any, folder: Path, config: DecoderConfig) -> None:
    """Put the tokenizer that lies in `folder` into the file; without one the file says that it has none."""
    if not (folder / TOKENIZER).exists():
        writer.add_tokenizer_model("no_vocab")
        return
    place = Folder(folder)
    settings = place.read_json(SETTINGS) if place.has(SETTINGS) else {}
    try:
        _write_words(writer, place.read_json(TOKENIZER), settings, config)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInput(f"{TOKENIZER} is not what a tokenizer's file should be: {error!r}.") from None


def _write_words(writer: Any, data: dict[str, Any], settings: dict[str, Any], config: DecoderConfig) -> None:
    kind = _kind(data)
    pieces, types = _pieces(data, config.vocabulary)
    writer.add_tokenizer_model(kind)
    if kind == "gpt2":
        writer.add_tokenizer_pre(_cut(data))
    writer.add_token_list(pieces)
    if kind == "llama":
        writer.add_token_scores(_scores(data, pieces))
        writer.add_add_space_prefix(_prefixes(data))
    writer.add_token_types(types)
    if kind == "gpt2":
        writer.add_token_merges(_merges(data))
    _write_special(writer, data, settings, config.special)
    template = settings.get("chat_template")
    if isinstance(template, str):
        writer.add_chat_template(template)


def _kind(data: dict[str, Any]) -> str:
    """What llama.cpp calls such a tokenizer; one that it would read differently is refused."""
    model = data["model"]
    if model.get("type") == "BPE" and model.get("byte_fallback"):
        return "llama"
    if model.get("type") == "BPE" and _steps(data, "pre_tokenizer", "ByteLevel"):
        return "gpt2"
    raise InvalidInput(
        f"A tokenizer of kind {model.get('type')} without bytes has no place in GGUF.",
        hint="Train one of kind bpe, or export without the tokenizer.",
    )


def _cut(data: dict[str, Any]) -> str:
    """The name of the way in which a text is cut into words before it is cut into pieces."""
    odd = [step["type"] for step in _steps(data, "normalizer") if step["type"] != "NFC"]
    spaced = any(step.get("add_prefix_space") for step in _steps(data, "pre_tokenizer", "ByteLevel"))
    if odd or spaced:
        raise _unsaid(f"that changes a text by {odd[0] if odd else 'a space before it'}")
    steps = _steps(data, "pre_tokenizer")
    splits = [step["pattern"].get("Regex") for step in steps if step["type"] == "Split"]
    by_bytes = any(step.get("use_regex", True) for step in steps if step["type"] == "ByteLevel")
    digits = any(step["type"] == "Digits" and step.get("individual_digits") for step in steps)
    if len(steps) == 1 and by_bytes:
        return "gpt-2"
    if len(steps) == 2 and by_bytes and digits:
        return "smollm"
    if len(steps) == 2 and not by_bytes and len(splits) == 1 and splits[0] in PATTERNS:
        return PATTERNS[splits[0]]
    raise _unsaid("that cuts words in its own way")


def _unsaid(what: str) -> InvalidInput:
    return InvalidInput(f"A tokenizer {what} cannot be said in GGUF.", hint="Export without the tokenizer.")


def _steps(data: dict[str, Any], part: str, kind: str | None = None) -> list[dict[str, Any]]:
    """The steps of a part of the tokenizer, whether it is one or a sequence."""
    step = data.get(part)
    if step is None:
        return []
    listed = {"pre_tokenizer": "pretokenizers", "normalizer": "normalizers", "post_processor": "processors"}[part]
    inner = step[listed] if step["type"] == "Sequence" else [step]
    return [each for each in inner if kind is None or each["type"] == kind]


def _pieces(data: dict[str, Any], size: int) -> tuple[list[str], list[int]]:
    """Each id's piece and type; rows of the model that no piece has get a name that no text contains."""
    names = {id: piece for piece, id in data["model"]["vocab"].items()}
    added = {token["id"]: token for token in data.get("added_tokens", [])}
    names |= {id: token["content"] for id, token in added.items()}
    if max(names) >= size:
        raise InvalidInput(f"The tokenizer has ids up to {max(names)}, and the model knows {size} words.")
    unknown = data["model"].get("unk_token")

    def kind(id: int) -> int:
        if id not in names:
            return UNUSED
        if id in added:
            return UNKNOWN if names[id] == unknown else CONTROL if added[id]["special"] else OWN
        return BYTE if data["model"].get("byte_fallback") and _BYTE.fullmatch(names[id]) else NORMAL

    return [names.get(id, f"[PAD{id}]") for id in range(size)], [kind(id) for id in range(size)]


def _merges(data: dict[str, Any]) -> list[str]:
    return [each if isinstance(each, str) else " ".join(each) for each in data["model"]["merges"]]


def _scores(data: dict[str, Any], pieces: list[str]) -> list[float]:
    """What is merged first has the highest score; pieces that are never merged have none."""
    merged = (
        "".join(each.split(" ", 1)) if isinstance(each, str) else "".join(each) for each in data["model"]["merges"]
    )
    ranks: dict[str, int] = {}
    for rank, piece in enumerate(merged):
        ranks.setdefault(piece, rank)
    return [-float(ranks.get(piece, 0)) for piece in pieces]


def _prefixes(data: dict[str, Any]) -> bool:
    """Whether a text gets a space before its first word."""
    first = [step.get("prepend_scheme", "always") for step in _steps(data, "pre_tokenizer", "Metaspace")]
    return bool(_steps(data, "normalizer", "Prepend")) or any(scheme != "never" for scheme in first)


def _write_special(writer: Any, data: dict[str, Any], settings: dict[str, Any], special: Special) -> None:
    """The ids that the model's settings name, or else the tokenizer's own; and which of them surround a text."""
    ids = {token["content"]: token["id"] for token in data.get("added_tokens", [])}
    ends = {"bos": special.begin, "eos": special.end[0] if special.end else None}
    for role, id in {**ends, "pad": special.padding, "unk": special.unknown}.items():
        named = settings.get(f"{role}_token")
        ends[role] = id if id is not None else ids.get(named.get("content") if isinstance(named, dict) else named)
        if ends[role] is not None:
            getattr(writer, f"add_{role}_token_id")(ends[role])
    around = [ids.get(next(iter(each.values()))["id"]) for each in _template(data)] or [None]
    writer.add_add_bos_token(around[0] is not None and around[0] == ends["bos"])
    writer.add_add_eos_token(around[-1] is not None and around[-1] == ends["eos"])


def _template(data: dict[str, Any]) -> list[dict[str, Any]]:
    """What the tokenizer puts around a text."""
    for step in _steps(data, "post_processor", "TemplateProcessing"):
        return step["single"]
    return []
