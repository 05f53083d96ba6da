"""Converts older tokenizer files to tokenizer.json: SentencePiece, vocab.json with merges.txt, vocab.txt.

A SentencePiece file (Marian's source.spm and target.spm) is a protocol buffer with pieces and scores, training options
and normalisation. It is parsed here by a minimal reader, without the sentencepiece library.
"""

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence

from peasy.errors import InvalidInput
from peasy.tokenization.tokenizer import UNREACHABLE_PREFIX, Tokenizer
from peasy.tokenization.tokenizer_validation import JsonDict

_NORMAL, _UNKNOWN, _CONTROL, _USER, _BYTE = 1, 2, 3, 4, 6
_UNIGRAM = 1
_SPECIAL_TOKENS = (
    "<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]",
)  # fmt: skip


def from_merges(vocabulary: Mapping[str, int], merges: str, config: JsonDict | None = None) -> Tokenizer:
    """Make a byte-level BPE tokenizer from vocab.json and merges.txt; adds `<s>` and `</s>` if they exist."""
    lines = [line for line in merges.splitlines() if line and not line.startswith("#version")]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    wrapped = {"<s>", "</s>"} <= vocabulary.keys()
    steps = {"pre_tokenizer": byte_level, "decoder": byte_level}
    model = {"type": "BPE", "vocab": dict(vocabulary), "merges": lines}
    templates = ("<s> $A </s>", "<s> $A </s> $B </s>") if wrapped else ()
    return Tokenizer(_tokenizer_json(model, vocabulary, _SPECIAL_TOKENS, templates, steps), config)


def from_vocab_txt(lines: str, config: JsonDict | None = None) -> Tokenizer:
    """Make a WordPiece tokenizer from vocab.txt: the line number is the id of the token."""
    pieces = lines.splitlines()
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    missing = next((name for name in ("[UNK]", "[CLS]", "[SEP]") if name not in vocabulary), None)
    if missing or len(vocabulary) != len(pieces):
        raise InvalidInput(f"vocab.txt has no {missing}." if missing else "vocab.txt has a duplicate token.")
    prefix = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    model = {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]", **prefix}
    normalizer = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    lowercase = (config or {}).get("do_lower_case", True) is not False
    steps = {
        "normalizer": {"type": "BertNormalizer", "lowercase": lowercase, **normalizer},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    }
    templates = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]")
    return Tokenizer(_tokenizer_json(model, vocabulary, _SPECIAL_TOKENS, templates, steps), config)


def from_sentencepiece(
    model: bytes, vocabulary: Mapping[str, int] | None = None, *, eos: str = "</s>", unk: str = "<unk>"
) -> Tokenizer:
    """Make a tokenizer of a unigram sentencepiece model; `vocabulary` gives the ids if they are not the file's.

    Texts are split as the file prescribes; pieces missing from `vocabulary` become `unk`. `eos` is appended to
    each text.
    """
    pieces, charsmap = _read_model(model)
    ids = dict(vocabulary) if vocabulary is not None else {piece: i for i, (piece, _, _) in enumerate(pieces)}
    for name in (eos, unk):
        if name not in ids:
            raise InvalidInput(f"The vocabulary of the sentencepiece model has no {name}.")
    if sorted(ids.values()) != list(range(len(ids))):
        raise InvalidInput(f"The ids of the vocabulary should be 0 to {len(ids) - 1:,}, each exactly once.")
    scores = {piece: 0.0 if kind in (_UNKNOWN, _CONTROL, _USER) else score for piece, score, kind in pieces}
    without_id = [piece for piece, _, kind in pieces if piece not in ids and kind == _NORMAL]
    scored = [
        [piece, scores[piece]] if piece in scores else [UNREACHABLE_PREFIX + piece, 0.0]
        for piece in sorted(ids, key=lambda piece: ids[piece]) + without_id
    ]
    unigram = {"type": "Unigram", "unk_id": ids[unk], "vocab": scored, "byte_fallback": False}
    steps = _sentencepiece_steps(charsmap)
    data = _tokenizer_json(unigram, ids, ("<pad>", "<s>", eos, unk), (f"$A {eos}", "$A $B"), steps)
    config: JsonDict = {"eos_token": eos, "unk_token": unk, "peasy_vocab_size": len(ids)}
    return Tokenizer(data, config | ({"pad_token": "<pad>"} if "<pad>" in ids else {}))


def _sentencepiece_steps(charsmap: bytes) -> JsonDict:
    encoded = base64.b64encode(charsmap).decode("ascii")
    normalizers = [
        *([{"type": "Precompiled", "precompiled_charsmap": encoded}] if charsmap else []),
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    remove_prefix = {"type": "Replace", "pattern": {"String": UNREACHABLE_PREFIX}, "content": ""}
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": space,
        "decoder": {"type": "Sequence", "decoders": [remove_prefix, space]},
    }


def _tokenizer_json(
    model: JsonDict, ids: Mapping[str, int], special: Sequence[str], templates: Sequence[str], steps: JsonDict
) -> JsonDict:
    """Return the contents of a tokenizer.json; `templates` place the special tokens around one text, and two."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = sorted((ids[name], name) for name in dict.fromkeys(special) if name in ids)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": name, **flags} for id, name in added],
        "normalizer": None,
        "post_processor": _post_processor(*templates, ids=ids) if templates else None,
        "model": model,
        **steps,
    }


def _post_processor(single: str, pair: str, *, ids: Mapping[str, int]) -> JsonDict:
    names = [name for name in dict.fromkeys(single.split()) if not name.startswith("$")]

    def parts(template: str) -> list[JsonDict]:
        kinds = ("Sequence" if name.startswith("$") else "SpecialToken" for name in template.split())
        ids_of = (name.removeprefix("$") for name in template.split())
        return [{kind: {"id": id, "type_id": 0}} for kind, id in zip(kinds, ids_of, strict=True)]

    special = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in names}
    return {"type": "TemplateProcessing", "single": parts(single), "pair": parts(pair), "special_tokens": special}


def _read_model(data: bytes) -> tuple[list[tuple[str, float, int]], bytes]:
    """Return the pieces of a sentencepiece file with score and type, and its normalisation table."""
    pieces: list[tuple[str, float, int]] = []
    charsmap, kind = b"", _UNIGRAM
    for field, value in _message_fields(data):
        if field == 1:
            pieces.append(_read_piece(_require_bytes(value)))
        elif field == 2:
            kind = dict(_message_fields(_require_bytes(value))).get(3, _UNIGRAM)  # type: ignore[assignment]
        elif field == 3:
            charsmap = _require_bytes(dict(_message_fields(_require_bytes(value))).get(2, b""))
    if not pieces:
        raise InvalidInput("The file is not a sentencepiece model: it has no pieces.")
    if kind != _UNIGRAM or any(kind == _BYTE for _, _, kind in pieces):
        raise InvalidInput("The sentencepiece model is not a unigram model, the only type that peasy supports.")
    return pieces, charsmap


def _read_piece(data: bytes) -> tuple[str, float, int]:
    fields = dict(_message_fields(data))
    kind = fields.get(3, _NORMAL)
    try:
        piece = _require_bytes(fields.get(1, b"")).decode("utf-8")
        (score,) = struct.unpack("<f", _require_bytes(fields.get(2, b"\0\0\0\0")))
    except (UnicodeDecodeError, struct.error):
        raise InvalidInput("The sentencepiece model has a damaged piece.") from None
    if not piece or score != score or abs(score) > 1e30 or not isinstance(kind, int):
        raise InvalidInput(f"The sentencepiece model has a damaged piece {piece[:40]!r}.")
    return piece, score, kind


def _message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Iterate over the fields of a protocol buffer message: varints as int, everything else as bytes."""
    offset = 0
    while offset < len(data):
        key, offset = _varint(data, offset)
        if key & 7 == 0:
            number, offset = _varint(data, offset)
            yield key >> 3, number
            continue
        if key & 7 == 2:
            size, offset = _varint(data, offset)
        else:
            size = {1: 8, 5: 4}.get(key & 7, -1)
        if size < 0 or offset + size > len(data):
            raise InvalidInput("The sentencepiece model is damaged or cut off.")
        yield key >> 3, data[offset : offset + size]
        offset += size


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    number = 0
    for shift, byte in zip(range(0, 70, 7), data[offset : offset + 10], strict=False):
        number |= (byte & 127) << shift
        offset += 1
        if byte < 128:
            return number, offset
    raise InvalidInput("The sentencepiece model is damaged or cut off.")


def _require_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise InvalidInput("The sentencepiece model has a number where data should be.")
    return value
