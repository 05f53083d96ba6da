"""Converts a unigram sentencepiece model (Marian's source.spm and target.spm) to a tokenizer.

The file is a protocol buffer with pieces and scores, training options and normalisation. It is parsed here by a
minimal reader, without the sentencepiece library.
"""

import base64
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from peasy.errors import InvalidInput
from peasy.tokenization.tokenizer import UNREACHABLE_PREFIX, Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER, _BYTE = 1, 2, 3, 4, 6
_UNIGRAM = 1


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
    _check_ids(ids)
    ordered = sorted(ids, key=lambda piece: ids[piece])
    without_id = [piece for piece, _, kind in pieces if piece not in ids and kind == _NORMAL]
    special = [name for name in ordered if name in ("<pad>", "<s>", eos, unk)]
    data = _tokenizer_json(ordered + without_id, dict(_piece_scores(pieces)), charsmap, ids, special, eos, unk)
    config: dict[str, Any] = {"eos_token": eos, "unk_token": unk, "peasy_vocab_size": len(ids)}
    return Tokenizer(data, config | ({"pad_token": "<pad>"} if "<pad>" in ids else {}))


def _tokenizer_json(
    pieces: list[str],
    scores: Mapping[str, float],
    charsmap: bytes,
    ids: Mapping[str, int],
    special: list[str],
    eos: str,
    unk: str,
) -> dict[str, Any]:
    normalizers: list[dict[str, Any]] = [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    if charsmap:
        encoded = base64.b64encode(charsmap).decode("ascii")
        normalizers.insert(0, {"type": "Precompiled", "precompiled_charsmap": encoded})
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    remove_prefix = {"type": "Replace", "pattern": {"String": UNREACHABLE_PREFIX}}
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": ids[name], "content": name, **flags} for name in special],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": space,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": eos, "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {eos: {"id": eos, "ids": [ids[eos]], "tokens": [eos]}},
        },
        "decoder": {"type": "Sequence", "decoders": [{**remove_prefix, "content": ""}, space]},
        "model": {
            "type": "Unigram",
            "unk_id": ids[unk],
            "vocab": [
                [piece, scores[piece]] if piece in scores else [UNREACHABLE_PREFIX + piece, 0.0] for piece in pieces
            ],
            "byte_fallback": False,
        },
    }


def _piece_scores(pieces: list[tuple[str, float, int]]) -> Iterator[tuple[str, float]]:
    for piece, score, kind in pieces:
        yield piece, 0.0 if kind in (_UNKNOWN, _CONTROL, _USER) else score


def _check_ids(ids: Mapping[str, int]) -> None:
    if sorted(ids.values()) != list(range(len(ids))):
        raise InvalidInput(f"The ids of the vocabulary should be 0 to {len(ids) - 1:,}, each exactly once.")


def _read_model(data: bytes) -> tuple[list[tuple[str, float, int]], bytes]:
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
    for shift in range(0, 70, 7):
        if offset >= len(data):
            break
        number |= (data[offset] & 127) << shift
        offset += 1
        if data[offset - 1] < 128:
            return number, offset
    raise InvalidInput("The sentencepiece model is damaged or cut off.")


def _require_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise InvalidInput("The sentencepiece model has a number where data should be.")
    return value
