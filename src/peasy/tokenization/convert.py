"""Converts older tokenizer files to tokenizer.json: SentencePiece, vocab.json with merges.txt, vocab.txt.

A SentencePiece file (Marian's source.spm and target.spm) is a protocol buffer with pieces and scores, training options
and normalisation. It is parsed here by a minimal reader, without the sentencepiece library.
"""

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence

from peasy.errors import InvalidInput
from peasy.tokenization.tokenizer import UNREACHABLE_PREFIX, Tokenizer
from peasy.tokenization.tokenizer_classes import ROBERTA, bert_steps, special_token
from peasy.tokenization.tokenizer_validation import JsonDict

_NORMAL, _UNKNOWN, _CONTROL, _USER, _BYTE = 1, 2, 3, 4, 6
_UNIGRAM, _BPE = 1, 2
_MAX_PIECES, _MAX_MERGE_CHARS = 500_000, 50_000_000
"""Pieces of a sentencepiece file, twice those of Gemma 3, and characters of its merges, ten times those of Gemma."""
_SAVE_HINT = "Write its tokenizer.json once: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
_FILE_IDS = (None, "AlbertTokenizer", "LlamaTokenizer", "GemmaTokenizer", "PreTrainedTokenizerFast", "T5Tokenizer")
"""Tokenizer classes with the ids of the sentencepiece file."""
_SPECIAL_TOKENS = (
    "<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]",
)  # fmt: skip


def from_merges(vocabulary: Mapping[str, int], merges: str, config: JsonDict | None = None) -> Tokenizer:
    """Make a byte-level BPE tokenizer from vocab.json and merges.txt.

    The class that tokenizer_config.json names decides on special tokens around a text; without one, `<s>` and `</s>`
    are added if they exist.
    """
    config = dict(config or {})
    lines = [line for line in merges.splitlines() if line and not line.startswith("#version")]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    steps = {"pre_tokenizer": byte_level, "decoder": byte_level}
    model = {"type": "BPE", "vocab": dict(vocabulary), "merges": lines}
    name = config.get("tokenizer_class")
    wrapped = {"<s>", "</s>"} <= vocabulary.keys() and (name is None or name in ROBERTA)
    templates = ("<s> $A </s>", "<s> $A </s> $B </s>") if wrapped else _bos_template(config, vocabulary)
    default = _SPECIAL_TOKENS if name is None else _SPECIAL_TOKENS[1:6] if name in ROBERTA else _SPECIAL_TOKENS[:1]
    is_named = all(f"{role}_token" in config for role in ("bos", "eos", "unk"))
    return Tokenizer(_tokenizer_json(model, vocabulary, () if is_named else default, templates, steps), config)


def _bos_template(config: JsonDict, ids: Mapping[str, int]) -> Sequence[str]:
    """Return the templates of a text with the bos and eos tokens that the config asks for."""
    bos, eos = (
        f"{token['content']} "
        if config.get(f"add_{role}_token") is True
        and (token := special_token(config.get(f"{role}_token")))
        and token["content"] in ids
        else ""
        for role in ("bos", "eos")
    )
    return (f"{bos}$A {eos}", f"{bos}$A {eos}{bos}$B {eos}") if bos or eos else ()


def from_vocab_txt(lines: str, config: JsonDict | None = None) -> Tokenizer:
    """Make a WordPiece tokenizer from vocab.txt: the line number is the id of the token."""
    vocabulary = {piece: id for id, piece in enumerate(lines.splitlines())}  # of equal lines, the last one counts
    for missing in ("[UNK]", "[CLS]", "[SEP]"):
        if missing not in vocabulary:
            raise InvalidInput(f"vocab.txt has no {missing}.")
    prefix = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    model = {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]", **prefix}
    templates = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]")
    data = _tokenizer_json(model, vocabulary, _SPECIAL_TOKENS, templates, bert_steps(config or {}))
    return Tokenizer(data, config)


def from_sentencepiece(
    model: bytes, vocabulary: Mapping[str, int] | None = None, config: JsonDict | None = None
) -> Tokenizer:
    """Make a tokenizer of a sentencepiece model; `vocabulary` gives the ids if they are not the file's.

    Texts are split as the file prescribes; pieces missing from `vocabulary` become unknown. The eos token is appended
    to each text, and the language token of M2M100 comes before it; Llama's class adds what its config says.
    """
    pieces, charsmap, is_bpe = _read_model(model)
    config = dict(config or {})
    ids, special = _piece_ids(pieces, vocabulary, config)
    eos, unk = next((name for name in ("</s>", "[SEP]", "<eos>") if name in ids), "</s>"), "<unk>"
    for name in (eos, unk):
        if name not in ids:
            raise InvalidInput(f"The vocabulary of the sentencepiece model has no {name}.")
    if sorted(ids.values()) != list(range(len(ids))):
        raise InvalidInput(f"The ids of the vocabulary should be 0 to {len(ids) - 1:,}, each exactly once.")
    without_id = [piece for piece, _, kind in pieces if piece not in ids and kind == _NORMAL]
    ordered = sorted(ids, key=lambda piece: ids[piece]) + without_id
    steps, language = _sentencepiece_steps(charsmap), f"__{config.get('src_lang') or 'en'}__ "
    if is_bpe:
        model_json = _bpe_model(pieces, ordered, unk)
    else:
        scores = {piece: 0.0 if kind in (_UNKNOWN, _CONTROL, _USER) else score for piece, score, kind in pieces}
        scores = dict.fromkeys(special, 0.0) | scores
        scored = [[p, scores[p]] if p in scores else [UNREACHABLE_PREFIX + p, 0.0] for p in ordered]
        model_json = {"type": "Unigram", "unk_id": ids[unk], "vocab": scored, "byte_fallback": False}
    templates: Sequence[str] = (f"{language if language.strip() in ids else ''}$A {eos}", "$A $B")
    if "<s>" in ids and config.get("tokenizer_class") in ("XLMRobertaTokenizer", "CamembertTokenizer"):
        templates = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
    elif eos == "[SEP]" and "[CLS]" in ids:
        templates, special = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"), [*special, "[CLS]", "[MASK]"]
    if model_json.get("byte_fallback"):
        bos = "<s>" if "<s>" in ids else "<bos>"
        config = {"tokenizer_class": "LlamaTokenizer", "bos_token": bos, "add_bos_token": True} | config
        templates = _bos_template(config, ids)
    data = _tokenizer_json(model_json, ids, ("<pad>", "<s>", "<bos>", eos, unk, *special), templates, steps)
    named: JsonDict = {"eos_token": eos, "unk_token": unk} | ({"pad_token": "<pad>"} if "<pad>" in ids else {})
    is_separate = vocabulary is not None and (without_id or not is_bpe)
    return Tokenizer(data, named | config | ({"peasy_vocab_size": len(ids)} if is_separate else {}))


def _piece_ids(
    pieces: Sequence[tuple[str, float, int]], vocabulary: Mapping[str, int] | None, config: JsonDict
) -> tuple[dict[str, int], list[str]]:
    """Return the ids of pieces, and more special tokens: M2M100's languages, XLM-R's mask, T5's sentinels."""
    if vocabulary is not None:
        listed = config.get("additional_special_tokens")
        languages = [str(token) for token in listed if token not in vocabulary] if isinstance(listed, list) else []
        return {**vocabulary, **{name: len(vocabulary) + i for i, name in enumerate(languages)}}, languages
    names, more, name = [piece for piece, _, _ in pieces], ["<pad>", "<mask>"], config.get("tokenizer_class")
    if name == "XLMRobertaTokenizer":
        names = ["<s>", "<pad>", "</s>", "<unk>", *names[3:], "<mask>"]
    elif name == "CamembertTokenizer":  # the file's ids come after those of fairseq
        names = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", *names[1:], "<mask>"]
    elif name == "T5Tokenizer" and isinstance(count := config.get("extra_ids", 100), int):
        sentinels = [f"<extra_id_{i}>" for i in reversed(range(min(count, 1000)))]
        names, more = [*names, *sentinels], [*more, *sentinels]
    elif name not in _FILE_IDS and not any(kind == _BYTE for _, _, kind in pieces):
        raise InvalidInput(f"The ids of {str(name)[:40]} are not those of its sentencepiece file.", hint=_SAVE_HINT)
    return {piece: id for id, piece in enumerate(names)}, more


def _bpe_model(pieces: Sequence[tuple[str, float, int]], ordered: Sequence[str], unk: str) -> JsonDict:
    """Return a BPE model whose merges are all splits of a piece into two pieces, those of the best piece first."""
    rank = {piece: i for i, (piece, _, kind) in enumerate(pieces) if kind in (_NORMAL, _USER)}
    merges, num_chars = list[tuple[str, str]](), 0
    for piece in sorted(rank, key=lambda piece: -pieces[rank[piece]][1]):
        num_chars += len(piece) * sum(piece[:at] in rank for at in range(1, len(piece)))
        if num_chars > _MAX_MERGE_CHARS:
            raise InvalidInput("The pieces of the sentencepiece model can be joined in too many ways.", hint=_SAVE_HINT)
        splits = ((piece[:at], piece[at:]) for at in range(1, len(piece)))
        merges += sorted(
            (pair for pair in splits if pair[0] in rank and pair[1] in rank), key=lambda p: (rank[p[0]], rank[p[1]])
        )
    has_bytes = any(kind == _BYTE for _, _, kind in pieces)
    options = {"unk_token": unk, "fuse_unk": True, "byte_fallback": has_bytes}
    return {
        "type": "BPE",
        "vocab": {p: i for i, p in enumerate(ordered)},
        "merges": [list(m) for m in merges],
        **options,
    }


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


def _read_model(data: bytes) -> tuple[list[tuple[str, float, int]], bytes, bool]:
    """Return the pieces of a sentencepiece file with score and type, its normalisation table, and whether it is BPE."""
    pieces: list[tuple[str, float, int]] = []
    charsmap, kind = b"", _UNIGRAM
    for field, value in _message_fields(data):
        if field == 1:
            pieces.append(_read_piece(_require_bytes(value)))
            if len(pieces) > _MAX_PIECES:
                raise InvalidInput(f"The sentencepiece model has more than {_MAX_PIECES:,} pieces.", hint=_SAVE_HINT)
        elif field == 2:
            kind = dict(_message_fields(_require_bytes(value))).get(3, _UNIGRAM)  # type: ignore[assignment]
        elif field == 3:
            charsmap = _require_bytes(dict(_message_fields(_require_bytes(value))).get(2, b""))
    if not pieces:
        raise InvalidInput("The file is not a sentencepiece model: it has no pieces.")
    has_bytes = any(kind == _BYTE for _, _, kind in pieces)
    if kind not in (_UNIGRAM, _BPE) or (kind == _UNIGRAM and has_bytes):
        problem = "a unigram model with bytes" if has_bytes else "neither a unigram nor a BPE model"
        raise InvalidInput(f"The sentencepiece model is {problem}.", hint=_SAVE_HINT if has_bytes else None)
    return pieces, charsmap, kind == _BPE


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
