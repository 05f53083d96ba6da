"""Settings of tokenizer_config.json that change a tokenizer.json, as the tokenizer class that it names applies them."""

from peasy.tokenization.tokenizer_validation import JsonDict

_ADDED_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_BERT = {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"}
_LLAMA = {"LlamaTokenizer"}
_BYTE_LEVEL = {"GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer"}


def apply_tokenizer_class(data: JsonDict, config: JsonDict) -> JsonDict:
    """Return a validated tokenizer.json as its `tokenizer_class` reads it: letter case, space before the first word.

    These classes build their normalizer and pre-tokenizer from tokenizer_config.json, whatever tokenizer.json says.
    """
    name = str(config.get("tokenizer_class", "")).removesuffix("Fast")
    if name in _BERT:
        return data | {"normalizer": _bert_normalizer(config)}
    if name in _LLAMA and data["model"].get("byte_fallback"):
        return data | _llama_steps(config)
    if name in _BYTE_LEVEL and isinstance(data.get("pre_tokenizer"), dict):
        return data | {"pre_tokenizer": _with_prefix_space(data["pre_tokenizer"], bool(config.get("add_prefix_space")))}
    return data


def with_added_tokens(data: JsonDict, config: JsonDict) -> JsonDict:
    """Return a tokenizer.json with the added tokens of tokenizer_config.json that it does not have itself."""
    given, more = data.get("added_tokens") or [], config.get("added_tokens_decoder")
    if not isinstance(more, dict) or not isinstance(given, list):
        return data
    known = {token.get("id") for token in given if isinstance(token, dict)}
    added = [
        {key: token.get(key, False) for key in _ADDED_TOKEN_FLAGS} | {"id": int(id), "content": token.get("content")}
        for id, token in more.items()
        if isinstance(token, dict) and id.isdecimal() and len(id) < 10 and int(id) not in known
    ]
    return data | {"added_tokens": sorted([*given, *added], key=lambda token: token["id"])} if added else data


def _bert_normalizer(config: JsonDict) -> JsonDict:
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
        "strip_accents": config.get("strip_accents"),
        "lowercase": config.get("do_lower_case", True),
    }


def _llama_steps(config: JsonDict) -> JsonDict:
    """Return the pipeline of Llama: only the first word gets a space, or each part between special tokens (legacy)."""
    adds_space = config.get("add_prefix_space") is not False
    scheme = ("always" if config.get("legacy") else "first") if adds_space else "never"
    decoders: list[JsonDict] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if adds_space else []
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False},
        "decoder": {"type": "Sequence", "decoders": decoders + strip},
    }


def _with_prefix_space(component: JsonDict, adds_space: bool) -> JsonDict:
    if component.get("type") == "ByteLevel":
        return component | {"add_prefix_space": adds_space}
    inner = component.get("pretokenizers")
    if component.get("type") != "Sequence" or not isinstance(inner, list):
        return component
    return component | {"pretokenizers": [_with_prefix_space(part, adds_space) for part in inner]}
