"""Tokenizer classes of transformers: what each makes of tokenizer.json and tokenizer_config.json.

A class builds its normalizer, pre-tokenizer and decoder anew, whatever tokenizer.json says; else the file counts.
"""

import logging
from collections.abc import Mapping

from peasy.tokenization.tokenizer_validation import JsonDict

_LOG = logging.getLogger(__name__)

FILE_CLASS = "PreTrainedTokenizerFast"
"""Class that uses tokenizer.json as it is."""

_MODEL_TYPES = {
    "GPT2Tokenizer": "gpt2 gpt_neo opt phi starcoder2", "GPTNeoXTokenizer": "gpt_neox", "Qwen2Tokenizer": "qwen2 qwen3",
    "GemmaTokenizer": "gemma gemma2 gemma3 gemma3_text", "BertTokenizer": "bert distilbert electra",
    "RobertaTokenizer": "roberta roberta-prelayernorm bart", "MPNetTokenizer": "mpnet", "AlbertTokenizer": "albert",
    "XLMRobertaTokenizer": "xlm-roberta", "CamembertTokenizer": "camembert", "T5Tokenizer": "t5 mt5",
    "M2M100Tokenizer": "m2m_100", "MBartTokenizer": "mbart", "PegasusTokenizer": "pegasus",
    FILE_CLASS: "gpt_bigcode mistral mistral3 ministral mixtral phi3 olmo2 olmo3 stablelm granite modernbert",
}  # fmt: skip
_CLASS_OF_MODEL = {model: name for name, models in _MODEL_TYPES.items() for model in models.split()}
_ALWAYS_OF_MODEL = ("qwen2",)
"""Models whose published files often name a wrong class."""

_SPECIAL_TOKEN_KEYS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_ADDED_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_WORDPIECE = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer")
ROBERTA = ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer")
UNIGRAM = (
    "T5Tokenizer", "XLMRobertaTokenizer", "CamembertTokenizer", "AlbertTokenizer", "MBartTokenizer", "PegasusTokenizer",
)  # fmt: skip
_UNKNOWN_ID = {"T5Tokenizer": 2, "XLMRobertaTokenizer": 3, "AlbertTokenizer": 1, "MBartTokenizer": 3}
"""Id of unknown characters, whatever the file says; no class of a unigram model spells them as bytes."""
_BYTE_LEVEL = ("GPT2Tokenizer", "CodeGenTokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer", *ROBERTA)
_MODELS_OF_CLASSES = {"WordPiece": _WORDPIECE, "Unigram": UNIGRAM, "BPE": _BYTE_LEVEL}
_QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def choose_tokenizer_class(config: JsonDict, model_config: Mapping[str, object]) -> str | None:
    """Return the class that transformers chooses, from tokenizer_config.json and the model's config.json."""
    named = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    given = named.removesuffix("Fast") if isinstance(named, str) and named != FILE_CLASS else named
    model_type = model_config.get("model_type")
    registered = _CLASS_OF_MODEL.get(model_type) if isinstance(model_type, str) else None
    # Llama's class is written for tokenizer.json, too: DeepSeek R1 Distill
    is_forced = model_type in _ALWAYS_OF_MODEL and given != "LlamaTokenizer"
    if registered == FILE_CLASS or is_forced or not isinstance(given, str):
        return registered
    return given


def apply_tokenizer_class(data: JsonDict, config: JsonDict) -> JsonDict:
    """Return a validated tokenizer.json with the steps that its `tokenizer_class` builds."""
    name, kind = str(config.get("tokenizer_class", "")), data["model"]["type"]
    name = name if name == FILE_CLASS else name.removesuffix("Fast")
    expected = next((model for model, names in _MODELS_OF_CLASSES.items() if name in names), kind)
    if kind != expected:
        _LOG.warning(
            "transformers reads this model's text with %s, a %s tokenizer, but tokenizer.json has a %s model. "
            "The file is used as it is; transformers 5 gives other ids.", name, expected, kind,
        )  # fmt: skip
    if name in _WORDPIECE and kind == "WordPiece":
        return data | bert_steps(config)
    if name in UNIGRAM and kind == "Unigram":
        return data | _unigram_steps(name, data, config)
    if kind != "BPE":
        return data
    if data["model"].get("byte_fallback"):
        steps = {"LlamaTokenizer": _llama_steps, "GemmaTokenizer": _gemma_steps}.get(name)
        return data | steps(config) if steps else data
    return data | _byte_level_steps(name, config)


def with_added_tokens(data: JsonDict, config: JsonDict) -> JsonDict:
    """Return a tokenizer.json with the added and special tokens of tokenizer_config.json that it does not have."""
    given, more, model = data.get("added_tokens") or [], config.get("added_tokens_decoder"), data.get("model")
    if not isinstance(given, list):
        return data
    known = [token.get("id") for token in given if isinstance(token, dict)]
    tokens = {
        int(id): token
        for id, token in (more.items() if isinstance(more, dict) else ())
        if isinstance(token, dict) and id.isdecimal() and len(id) < 10
    }
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict) and "tokenizer_class" in config:
        named = {
            str(token["content"]): token for key in _SPECIAL_TOKEN_KEYS if (token := special_token(config.get(key)))
        }
        tokens = {vocabulary[name]: token for name, token in named.items() if name in vocabulary} | tokens
    added = [
        {key: token.get(key, False) for key in _ADDED_TOKEN_FLAGS} | {"id": id, "content": token.get("content")}
        for id, token in tokens.items()
        if id not in known
    ]
    return data | {"added_tokens": sorted([*given, *added], key=lambda token: token["id"])} if added else data


def special_token(value: object) -> JsonDict | None:
    """Return a token that a config names, with its flags; None if it names none."""
    token = {"content": value} if isinstance(value, str) else value
    return token | {"special": True} if isinstance(token, dict) and isinstance(token.get("content"), str) else None


def bert_steps(config: JsonDict) -> JsonDict:
    """Return the steps of BERT: split at spaces, punctuation and Chinese characters."""
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
        "strip_accents": config.get("strip_accents"),
        "lowercase": config.get("do_lower_case", True),
    }
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": decoder}


def _byte_level_steps(name: str, config: JsonDict) -> JsonDict:
    byte_level = {"type": "ByteLevel", "add_prefix_space": bool(config.get("add_prefix_space")), "trim_offsets": True}
    pre_tokenizer: JsonDict = byte_level | {"use_regex": True}
    if name == "Qwen2Tokenizer":
        split = {"type": "Split", "pattern": {"Regex": _QWEN_PATTERN}, "behavior": "Isolated", "invert": False}
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [split, byte_level | {"use_regex": False}]}
    elif name not in _BYTE_LEVEL:
        return {}
    normalizer = {"type": "NFC"} if name in ("GPTNeoXTokenizer", "Qwen2Tokenizer") else None
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    steps = {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder}
    adds_tokens = config.get("add_bos_token") or config.get("add_eos_token")
    return steps | ({"post_processor": None} if name == "GPTNeoXTokenizer" and not adds_tokens else {})


def _llama_steps(config: JsonDict) -> JsonDict:
    """Return the steps of Llama: only the first word gets a space, or each part between special tokens (legacy)."""
    adds_space = config.get("add_prefix_space") is not False
    scheme = ("always" if config.get("legacy") else "first") if adds_space else "never"
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if adds_space else []
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False},
        "decoder": {"type": "Sequence", "decoders": [*BYTE_FALLBACK_DECODERS, *strip]},
    }


BYTE_FALLBACK_DECODERS: list[JsonDict] = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]


def _gemma_steps(config: JsonDict) -> JsonDict:
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    return {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": split,
        "decoder": {"type": "Sequence", "decoders": BYTE_FALLBACK_DECODERS},
    }


def _unigram_steps(name: str, data: JsonDict, config: JsonDict) -> JsonDict:
    """Return the steps of a unigram model: the file's character map, then words with U+2581 before each."""
    given = data.get("normalizer") or {}
    normalizers = [step for step in given.get("normalizers", [given]) if step.get("type") == "Precompiled"][:1]
    if name == "AlbertTokenizer":
        quotes = [{"type": "Replace", "pattern": {"String": old}, "content": '"'} for old in ("``", "''")]
        accents = [] if config.get("keep_accents") else [{"type": "NFKD"}, {"type": "StripAccents"}]
        lowercase = [{"type": "Lowercase"}] if config.get("do_lower_case", True) else []
        normalizers = [*quotes, *accents, *lowercase, *normalizers]
    if name == "MBartTokenizer":
        normalizers = []
    if name == "PegasusTokenizer":
        patterns = (" {2,}",) if normalizers else (r"\n", " {2,}")
        normalizers += [{"type": "Replace", "pattern": {"Regex": pattern}, "content": " "} for pattern in patterns]
    adds_space = name == "T5Tokenizer" or config.get("add_prefix_space", True)
    scheme = "always" if adds_space else "never"
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    split = {"type": "WhitespaceSplit"}
    unknown = {"unk_id": _UNKNOWN_ID.get(name, data["model"].get("unk_id")), "byte_fallback": False}
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": space if name == "PegasusTokenizer" else {"type": "Sequence", "pretokenizers": [split, space]},
        "model": data["model"] | unknown,
        "decoder": space,
    }
