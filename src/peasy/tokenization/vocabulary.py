"""Tokenizers from older vocabulary files: vocab.json and merges.txt (GPT-2, RoBERTa), vocab.txt (BERT)."""

from collections.abc import Mapping, Sequence
from typing import Any

from peasy.errors import InvalidInput
from peasy.tokenization.tokenizer import Tokenizer

_SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<s>",
    "</s>",
    "<pad>",
    "<unk>",
    "<mask>",
    "[CLS]",
    "[SEP]",
    "[PAD]",
    "[UNK]",
    "[MASK]",
)
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def from_merges(vocabulary: Mapping[str, int], merges: str, config: Mapping[str, Any] | None = None) -> Tokenizer:
    """Make a byte-level BPE tokenizer from vocab.json and merges.txt; adds `<s>` and `</s>` if they exist."""
    lines = [line for line in merges.splitlines() if line and not line.startswith("#version")]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": dict(vocabulary), "merges": lines}
    wrapped = ("<s>", "</s>") if {"<s>", "</s>"} <= vocabulary.keys() else None
    return Tokenizer(_tokenizer_json(model, vocabulary, wrapped, pre_tokenizer=byte_level, decoder=byte_level), config)


def from_vocab_txt(lines: str, config: Mapping[str, Any] | None = None) -> Tokenizer:
    """Make a WordPiece tokenizer from vocab.txt: the line number is the id of the token."""
    pieces = lines.splitlines()
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    missing = next((name for name in ("[UNK]", "[CLS]", "[SEP]") if name not in vocabulary), None)
    if missing or len(vocabulary) != len(pieces):
        raise InvalidInput(f"vocab.txt has no {missing}." if missing else "vocab.txt has a duplicate token.")
    model = {
        "type": "WordPiece",
        "vocab": vocabulary,
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    lower = (config or {}).get("do_lower_case", True) is not False
    data = _tokenizer_json(
        model,
        vocabulary,
        ("[CLS]", "[SEP]"),
        normalizer={"type": "BertNormalizer", "lowercase": lower, **_BERT_NORMALIZER},
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )
    return Tokenizer(data, config)


_BERT_NORMALIZER = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None}


def _tokenizer_json(
    model: dict[str, Any], vocabulary: Mapping[str, int], bos_eos: Sequence[str] | None, **steps: Any
) -> dict[str, Any]:
    special = sorted((vocabulary[name], name) for name in _SPECIAL_TOKENS if name in vocabulary)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": name, **_FLAGS} for id, name in special],
        "normalizer": None,
        "post_processor": _post_processor(vocabulary, *bos_eos) if bos_eos else None,
        "model": model,
        **steps,
    }


def _post_processor(vocabulary: Mapping[str, int], bos: str, eos: str) -> dict[str, Any]:
    def token(name: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": 0}}

    text, second = ({"Sequence": {"id": letter, "type_id": 0}} for letter in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [token(bos), text, token(eos)],
        "pair": [token(bos), text, token(eos), second, token(eos)],
        "special_tokens": {
            name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in (bos, eos)
        },
    }  # fmt: skip
