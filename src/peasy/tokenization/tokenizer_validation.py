"""Validation of an untrusted tokenizer.json: only known steps with known keys, and exactly what the library builds.

The file is checked before the library sees it (`validate_tokenizer_json`), and what the library has built is compared
with the file (`check_built`), so that no part is read in another way than it was checked. Options of a training run
(padding, truncation, dropout) are removed. Anything that could make a short text expensive is rejected: unsafe
patterns, growing replacements, unlimited words. The cost of all the rest is bounded at run time, in
`isolated_encoder.py`.
"""

import base64
import math
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, TypeGuard

from peasy.config import JsonDict as JsonDict
from peasy.errors import InvalidInput
from peasy.tokenization.encoding import WORD_PATTERN
from peasy.tokenization.regex_safety import max_text_chars

_MAX_GROWTH = 32
"""Maximum factor by which all steps of a section together may lengthen a text."""

_MAX_WORD_CHARS = 1_000
_MAX_TOKEN_CHARS = 4_096
_MAX_ADDED_CHARS = 2_000_000
"""Characters of all added tokens together; the library's table of them takes a hundred times as much."""

_MAX_TEMPLATE_TOKENS = _MAX_STEPS = 64
_LONGEST_COMPATIBILITY_FORM = 18
"""Characters of the longest compatibility decomposition in Unicode (U+FDFA)."""

_TOP_LEVEL = (
    "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
    "model",
)  # fmt: skip
_BYTE_LEVEL = {"ByteLevel": "add_prefix_space trim_offsets use_regex"}
_METASPACE = {"Metaspace": "replacement prepend_scheme split str_rep add_prefix_space"}
_STEPS: Mapping[str, Mapping[str, str]] = {
    "normalizer": {
        "BertNormalizer": "clean_text handle_chinese_chars strip_accents lowercase", "ByteLevel": "", "Lowercase": "",
        "NFC": "", "NFD": "", "NFKC": "", "NFKD": "", "Nmt": "", "Precompiled": "precompiled_charsmap",
        "Prepend": "prepend", "Replace": "pattern content", "Sequence": "normalizers",
        "Strip": "strip_left strip_right", "StripAccents": "",
    },
    "pre_tokenizer": _BYTE_LEVEL | _METASPACE | {
        "BertPreTokenizer": "", "CharDelimiterSplit": "delimiter", "Digits": "individual_digits",
        "FixedLength": "length", "Punctuation": "behavior", "Sequence": "pretokenizers",
        "Split": "pattern behavior invert", "UnicodeScripts": "", "Whitespace": "", "WhitespaceSplit": "",
    },
    "post_processor": _BYTE_LEVEL | {
        "BertProcessing": "sep cls", "RobertaProcessing": "sep cls trim_offsets add_prefix_space",
        "Sequence": "processors", "TemplateProcessing": "single pair special_tokens",
    },
    "decoder": _BYTE_LEVEL | _METASPACE | {
        "BPEDecoder": "suffix", "ByteFallback": "", "CTC": "pad_token word_delimiter_token cleanup", "Fuse": "",
        "Replace": "pattern content", "Sequence": "decoders", "Strip": "content start stop",
        "WordPiece": "prefix cleanup",
    },
}  # fmt: skip
"""Types of steps of each section, with their keys; "type" is a key of all. Two keys of Metaspace are of older files."""

_LEGACY_KEYS = ("str_rep", "add_prefix_space")
_MODELS = {
    "BPE": "dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback ignore_merges vocab "
    "merges",
    "WordPiece": "unk_token continuing_subword_prefix max_input_chars_per_word vocab",
    "WordLevel": "vocab unk_token",
    "Unigram": "unk_id vocab byte_fallback",
}
_MODEL_OF_KEY = {"merges": "BPE", "max_input_chars_per_word": "WordPiece", "unk_id": "Unigram"}
"""Types of models by a key of them, for older files that do not name the type."""

_ADDED_TOKEN_KEYS = ("content", "id", "lstrip", "normalized", "rstrip", "single_word", "special")


def validate_tokenizer_json(data: object) -> tuple[JsonDict, int | None]:
    """Return the validated data, and the maximum number of characters of a text (None: unlimited)."""
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise InvalidInput("Not a tokenizer.json: it has no model.")
    _check_keys(data, _TOP_LEVEL, "tokenizer.json")
    model = _check_model(data["model"])
    _check_added(data.get("added_tokens") or [])
    limits = []
    for section in _STEPS:
        steps = list(islice(_walk(data.get(section), section), _MAX_STEPS + 1))
        if len(steps) > _MAX_STEPS:
            raise InvalidInput(f"Its {section} should have at most {_MAX_STEPS} steps.")
        limits += [limit for step in steps if (limit := _check_step(step, section)) is not None]
        growth = math.prod(_max_growth(step, section) for step in steps)
        if growth > _MAX_GROWTH:
            limit_text = f"{growth:,.0f} times as long; the limit is {_MAX_GROWTH}"
            raise InvalidInput(f"Its {section} can make a text {limit_text}.")
    return data | {"model": model, "truncation": None, "padding": None}, min(limits, default=None)


def check_built(data: JsonDict, built: Mapping[str, object]) -> None:
    """Raise if the library has built other steps than those in the file."""
    for section in _STEPS:
        if not _is_same(data.get(section), built[section]):
            message = f"Its {section} is read by the library in another way than it is written."
            raise InvalidInput(message, hint="Save it again with a current version of the tokenizers library.")


def _is_same(given: object, built: object) -> bool:
    """True if all that is given was built; keys that are not given have their default."""
    if isinstance(given, dict):
        return isinstance(built, dict) and all(
            (key in built and _is_same(value, built[key])) or (key in _LEGACY_KEYS and key not in built)
            for key, value in given.items()
        )
    if isinstance(given, list):
        return isinstance(built, list) and len(given) == len(built) and all(map(_is_same, given, built))
    return given == built


class TokenizerForm(NamedTuple):
    """Form of a validated tokenizer.json, which decides how it encodes and decodes."""

    is_own: bool
    """It has exactly a form that `train_tokenizer` or `from_merges` writes, whose cost is linear."""
    decoders: list[str]
    """Types of the steps of its decoder, in order."""
    decodes_as_a_whole: bool
    """The decoder changes the text after joining it, or in several steps that depend on neighbours.

    A later token may then change what is long before it. One character less at the beginning is no such change.
    """


def tokenizer_form(data: JsonDict) -> TokenizerForm:
    """Return the form of validated data."""
    steps = list(_walk(data.get("decoder"), "decoder"))
    types = [str(step["type"]) for step in steps]
    joined = steps[types.index("Fuse") :] if "Fuse" in types else []
    stripped = sum(step.get("start", 0) for step in joined)
    is_changed = stripped > 1 or any(step["type"] not in ("Fuse", "Strip") for step in joined)
    depends = len(steps) > 1 and not {"BPEDecoder", "ByteLevel", "CTC", "WordPiece"}.isdisjoint(types)
    return TokenizerForm(_is_own_form(data), types, is_changed or depends)


def _check_keys(table: JsonDict, known: tuple[str, ...], where: str) -> None:
    """Raise for a key that the library would ignore: it may hide what the library reads."""
    if unknown := [str(key) for key in table if key not in known]:
        raise InvalidInput(f"{where} has an unknown key {unknown[0][:40]!r}.", hint=f"Known: {', '.join(known)}.")


def _walk(step: object, section: str, depth: int = 0) -> Iterator[JsonDict]:
    """Yield the steps of a section, without the sequences around them."""
    if step is None and not depth:
        return
    if not isinstance(step, dict) or depth > 3:
        raise InvalidInput("A step is not a JSON object, or steps are nested too deeply.")
    kind, types = step.get("type"), _STEPS[section]
    if not isinstance(kind, str) or kind not in types:
        message = f"Its {section} has a step of type {str(kind)[:40]!r}."
        raise InvalidInput(message, hint=f"Supported are {', '.join(types)}.")
    _check_keys(step, ("type", *types[kind].split()), f"{kind} of its {section}")
    if kind != "Sequence":
        yield step
        return
    inner = step.get(types[kind])
    if not isinstance(inner, list) or len(inner) > _MAX_STEPS:
        raise InvalidInput(f"A Sequence should be a list of at most {_MAX_STEPS} steps.")
    for part in inner:
        yield from _walk(part, section, depth + 1)


def _check_step(step: JsonDict, section: str) -> int | None:
    """Check the values of a step; return the maximum number of characters of a text."""
    kind = step["type"]
    if kind == "TemplateProcessing":
        _check_template(step)
    if kind == "FixedLength" and not (type(step.get("length")) is int and step["length"] > 0):
        raise InvalidInput("The length of its FixedLength should be 1 or more.")
    if kind == "Strip" and section == "decoder" and step.get("stop", 0) != 0:
        raise InvalidInput("Its Strip decoder removes characters at the end, for which the library has no safe way.")
    if "pattern" not in step:
        return None
    pattern = step["pattern"]
    if not isinstance(pattern, dict) or len(pattern) != 1 or not isinstance(next(iter(pattern.values())), str):
        raise InvalidInput(f"The pattern of its {kind} should be one String or one Regex.")
    form, text = next(iter(pattern.items()))
    if form not in ("String", "Regex") or not text:
        raise InvalidInput(f"The pattern of its {kind} is empty, or neither a String nor a Regex.")
    limit = max_text_chars(text) if form == "Regex" else None
    if limit is not None and section == "decoder":  # a decoder also runs on the joined text, of any length
        raise InvalidInput(f"The pattern {text[:60]!r} of its decoder is not among the known ones.")
    return limit


def _check_template(template: JsonDict) -> None:
    """Check that a template has each text once, and few special tokens."""
    special, num_ids = template.get("special_tokens") or {}, 0
    if not isinstance(special, dict):
        raise InvalidInput("The special_tokens of its TemplateProcessing should be a table.")
    for token in special.values():
        ids = token.get("ids") if isinstance(token, dict) else None
        num_ids += len(ids) if isinstance(ids, list) else _MAX_TEMPLATE_TOKENS + 1
    for name, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        parts = template.get(name) or []
        parts = parts if isinstance(parts, list) else [None]
        sequences = [part["Sequence"] for part in parts if isinstance(part, dict) and "Sequence" in part]
        named = sorted(str(sequence.get("id")) for sequence in sequences if isinstance(sequence, dict))
        if parts and (named != texts or len(parts) + num_ids > _MAX_TEMPLATE_TOKENS):
            raise InvalidInput(
                f"The {name} template of its TemplateProcessing should have {' and '.join(texts)} once, "
                f"and at most {_MAX_TEMPLATE_TOKENS} special tokens."
            )


def check_special_ids(data: JsonDict, known: Collection[int]) -> None:
    """Raise if the post-processor adds an id that no token has: it would have no row in the embedding."""
    for step in _walk(data.get("post_processor"), "post_processor"):
        special = (step.get("special_tokens") or {}).values()
        ids = [id for token in special for id in token["ids"]] + [step[key][1] for key in ("sep", "cls") if key in step]
        if unknown := [id for id in ids if id not in known]:
            raise InvalidInput(f"Its {step['type']} adds the id {unknown[0]}, which no token has.")


def _max_growth(step: JsonDict, section: str) -> float:
    """Return the maximum growth factor of a text in this step; a pattern may match one character or an empty string.

    Steps of Unicode (case, normal forms) count as 1: repeating them does not lengthen a text again.
    """
    match step["type"]:
        case "Replace":
            content, pattern = step.get("content"), step.get("pattern")
            if not isinstance(content, str) or not isinstance(pattern, dict):
                raise InvalidInput("Its Replace should have a pattern, and its content should be text.")
            return max(1.0, len(content) / len(pattern["String"])) if "String" in pattern else 1 + len(content)
        case "Prepend":
            return 1 + len(str(step.get("prepend")))  # a text may consist of one character between two added tokens
        case "Precompiled":
            return max(1.0, _longest_replacement(step) / _LONGEST_COMPATIBILITY_FORM)
        case "ByteLevel" if section in ("normalizer", "pre_tokenizer"):
            return 4  # bytes of a character
        case "Metaspace" if section == "pre_tokenizer":
            return 2
        case "BPEDecoder" | "CTC":
            return 2  # an empty suffix matches between all characters
    return 1


def _longest_replacement(step: JsonDict) -> int:
    """Return the length of the longest replacement in a character map: a trie, then texts separated by zero bytes."""
    try:
        data = base64.b64decode(step.get("precompiled_charsmap", ""), validate=True)
        size = int.from_bytes(data[:4], "little")
        if len(data) < 4 or size > len(data) - 4 or size % 4:
            raise ValueError
        return max(map(len, data[4 + size :].decode("utf-8").split("\0")))
    except (TypeError, ValueError):  # also not base64, or not UTF-8
        raise InvalidInput("The precompiled_charsmap of its normalizer is damaged.") from None


def _check_model(model: JsonDict) -> JsonDict:
    """Return the checked model, with its type and without dropout."""
    kind = model.get("type") or next((kind for key, kind in _MODEL_OF_KEY.items() if key in model), None)
    if not isinstance(kind, str) or kind not in _MODELS:
        raise InvalidInput(f"Its model has type {str(kind)[:40]!r}; supported are {', '.join(_MODELS)}.")
    _check_keys(model, ("type", *_MODELS[kind].split()), f"Its {kind} model")
    max_chars = model.get("max_input_chars_per_word")
    if max_chars is not None and (type(max_chars) is not int or not 0 < max_chars <= _MAX_WORD_CHARS):
        allowed = f"1 to {_MAX_WORD_CHARS:,} are allowed"
        raise InvalidInput(f"Its max_input_chars_per_word is {str(max_chars)[:40]}; {allowed}.")
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, (dict, list)) or not vocabulary:
        raise InvalidInput("Its model has no vocab.")
    if isinstance(vocabulary, dict):
        _check_ids(vocabulary)
    pieces = vocabulary if isinstance(vocabulary, dict) else [entry[0] for entry in vocabulary if _is_scored(entry)]
    if len(pieces) != len(vocabulary):
        raise InvalidInput("Its vocab should list pairs of a piece and a score.")
    if max(map(len, pieces)) > _MAX_TOKEN_CHARS:
        raise InvalidInput(f"Its vocab has a piece of more than {_MAX_TOKEN_CHARS:,} characters.")
    return model | {"type": kind} | ({"dropout": None} if model.get("dropout") is not None else {})


def _check_ids(vocabulary: JsonDict) -> None:
    """Check that ids are unique and not huge, since they index the embedding; gaps (removed tokens) are allowed."""
    limit = 2 * len(vocabulary) + 100_000
    for piece, id in vocabulary.items():
        if type(id) is not int or not 0 <= id < limit:
            raise InvalidInput(f"The id of {piece[:40]!r} is {str(id)[:40]}; it should be 0 to {limit - 1:,}.")
    if len(set(vocabulary.values())) != len(vocabulary):
        raise InvalidInput("Two pieces of its vocab have the same id.")


def _is_scored(entry: object) -> TypeGuard[list[str | float]]:
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    return isinstance(entry[0], str) and isinstance(entry[1], (int, float)) and abs(entry[1]) < 1e30


def _check_added(added: object) -> None:
    num_chars = 0
    for token in added if isinstance(added, list) else [None]:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str) or not token["content"]:
            raise InvalidInput("Its added_tokens should be a list of tokens with non-empty content.")
        _check_keys(token, _ADDED_TOKEN_KEYS, "One of its added_tokens")
        num_chars += len(token["content"])
        if len(token["content"]) > _MAX_TOKEN_CHARS or num_chars > _MAX_ADDED_CHARS:
            limits = f"{_MAX_TOKEN_CHARS:,} characters, or all together more than {_MAX_ADDED_CHARS:,}"
            raise InvalidInput(f"One of its added_tokens has more than {limits}.")


# Pipelines that peasy itself writes, whose cost is linear for every text and vocabulary.


def _sequence(*steps: JsonDict) -> JsonDict:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _split(pattern: str) -> JsonDict:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_BYTES: JsonDict = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_OWN_NORMALIZERS = (None, "Lowercase", "BertNormalizer")
_OWN_PRE_TOKENIZERS = (
    _split(r"[\s\S]"),
    _sequence({"type": "WhitespaceSplit"}, _split(WORD_PATTERN)),
    _sequence({"type": "Digits", "individual_digits": True}, _BYTES),
    _BYTES,
    {"type": "BertPreTokenizer"},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
)
_OWN_OPTIONS = {
    "dropout": (None,), "continuing_subword_prefix": (None, "##"), "end_of_word_suffix": (None,), "fuse_unk": (False,),
    "byte_fallback": (False,), "ignore_merges": (False,), "max_input_chars_per_word": (100,),
}  # fmt: skip
_OWN_PIECE_CHARS = 64
_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


def _is_own_form(data: JsonDict) -> bool:
    model, normalizer = data["model"], data.get("normalizer")
    kind = normalizer and normalizer["type"]
    if kind not in _OWN_NORMALIZERS or data.get("pre_tokenizer") not in _OWN_PRE_TOKENIZERS:
        return False
    if any(model.get(key, allowed[0]) not in allowed for key, allowed in _OWN_OPTIONS.items()):
        return False
    if any(token.get(flag) for token in data.get("added_tokens") or () for flag in _TOKEN_FLAGS):
        return False
    if len(list(_walk(data.get("post_processor"), "post_processor"))) > 1:  # the library panics at two templates
        return False
    if model["type"] == "BPE" and model.get("continuing_subword_prefix"):  # and at merges of shorter pieces
        return False
    pieces = (entry[0] for entry in model["vocab"]) if model["type"] == "Unigram" else ()
    return max(map(len, pieces), default=0) <= _OWN_PIECE_CHARS
