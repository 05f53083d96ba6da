"""Converts older tokenizer files to tokenizer.json: SentencePiece, vocab.json with merges.txt, vocab.txt.

A SentencePiece file (Marian's source.spm and target.spm) is a protocol buffer with pieces and scores, training options
and normalisation. It is parsed here by a minimal reader, without the sentencepiece library.
"""

import base64
import logging
import struct
from collections.abc import Iterator, Mapping, Sequence

from peasy.errors import InvalidInput
from peasy.tokenization.encoding import split_lines
from peasy.tokenization.tokenizer import AROUND_SPECIAL, LONGEST_MATCH, UNREACHABLE_PREFIX, Tokenizer
from peasy.tokenization.tokenizer_classes import (
    BYTE_FALLBACK_DECODERS,
    FILE_CLASS,
    ROBERTA,
    UNIGRAM,
    bert_steps,
    special_token,
    with_added_tokens,
)
from peasy.tokenization.tokenizer_validation import JsonDict

_LOG = logging.getLogger(__name__)
_NORMAL, _UNKNOWN, _CONTROL, _USER, _BYTE = 1, 2, 3, 4, 6
_UNIGRAM, _BPE = 1, 2
_MAX_PIECES, _MAX_MERGE_CHARS = 500_000, 50_000_000
"""Pieces of a sentencepiece file, twice those of Gemma 3, and characters of its merges, ten times those of Gemma."""
_SAVE_HINT = "Write its tokenizer.json once: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
_FILE_IDS = (None, "AlbertTokenizer", "LlamaTokenizer", "GemmaTokenizer", "PreTrainedTokenizerFast", "T5Tokenizer")
"""Tokenizer classes with the ids of the sentencepiece file."""
_SENTENCEPIECE_CLASSES = (None, "MarianTokenizer", "M2M100Tokenizer")
"""Classes for which transformers asks the sentencepiece library; the others use the `tokenizers` library."""
_BPE_CLASSES = ("LlamaTokenizer", "GemmaTokenizer")
"""Classes that make a BPE model of any file; a unigram model is used as it is instead."""
_SPECIAL_TOKENS = (
    "<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]",
)  # fmt: skip


_MBART_LANGUAGES = (
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX", "kk_KZ",
    "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN",
)  # fmt: skip
"""Its file does not have them: their ids follow those of the pieces."""


def from_merges(vocabulary: Mapping[str, int], merges: str, config: JsonDict | None = None) -> Tokenizer:
    """Make a byte-level BPE tokenizer from vocab.json and merges.txt.

    The class that tokenizer_config.json names decides on special tokens around a text; without one, `<s>` and `</s>`
    are added if they exist.
    """
    config = dict(config or {})
    lines = [line for line in split_lines(merges) if line and not line.startswith("#version")]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    steps = {"pre_tokenizer": byte_level, "decoder": byte_level}
    model = {"type": "BPE", "vocab": dict(vocabulary), "merges": lines}
    name = config.get("tokenizer_class")
    wrapped = {"<s>", "</s>"} <= vocabulary.keys() and (name is None or name in ROBERTA)
    added = with_added_tokens({}, config).get("added_tokens", ())
    ids = {**vocabulary, **{token["content"]: token["id"] for token in added if isinstance(token["content"], str)}}
    templates = ("<s> $A </s>", "<s> $A </s> $B </s>") if wrapped else _bos_template(config, ids)
    default = _SPECIAL_TOKENS if name is None else _SPECIAL_TOKENS[1:6] if name in ROBERTA else _SPECIAL_TOKENS[:1]
    is_named = all(f"{role}_token" in config for role in ("bos", "eos", "unk"))
    return Tokenizer(_tokenizer_json(model, ids, () if is_named else default, templates, steps), config)


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
    vocabulary = {piece: id for id, piece in enumerate(split_lines(lines))}  # of equal lines, the last one counts
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

    Texts are split as the file prescribes; pieces missing from `vocabulary` become unknown. The eos token, if there is
    one, is appended to each text, and M2M100's language token comes before it; Llama's class adds what its config says.
    """
    pieces, normalisation, is_bpe = _read_model(model)
    config = dict(config or {})
    ids, special = _piece_ids(pieces, vocabulary, config)
    class_name = config.get("tokenizer_class")
    is_marian = vocabulary is not None and class_name is None
    eos = next((name for name in ("</s>", "[SEP]", "<eos>") if name in ids), "")
    unk = next((piece for piece, _, kind in pieces if kind == _UNKNOWN), "<unk>")
    for name in (unk, eos or ("</s>" if vocabulary else unk)):
        if name not in ids:
            raise InvalidInput(f"The vocabulary of the sentencepiece model has no {name}.")
    if sorted(ids.values()) != list(range(len(ids))):
        raise InvalidInput(f"The ids of the vocabulary should be 0 to {len(ids) - 1:,}, each exactly once.")
    without_id = [piece for piece, _, kind in pieces if piece not in ids and kind == _NORMAL]
    ordered = sorted(ids, key=lambda piece: ids[piece]) + without_id
    has_bytes = any(kind == _BYTE for _, _, kind in pieces)
    added = ["<pad>", eos, unk, *special, *(p for p, _, kind in pieces if kind == _CONTROL and not is_marian)]
    steps, language = _sentencepiece_steps(normalisation, has_bytes), f"__{config.get('src_lang') or 'en'}__ "
    if is_bpe:
        model_json = _bpe_model(pieces, ordered, unk)
    else:
        scores = dict.fromkeys(added, 0.0) | {
            piece: 0.0 if kind in (_UNKNOWN, _CONTROL, _USER) else score
            for piece, score, kind in pieces
            if kind != _CONTROL or piece in added or not is_marian
        }
        scored = [[p, scores[p]] if p in scores else [UNREACHABLE_PREFIX + p, 0.0] for p in ordered]
        model_json = {"type": "Unigram", "unk_id": ids[unk], "vocab": scored}
    model_json["byte_fallback"] = has_bytes
    templates: Sequence[str] = (f"{language if language.strip() in ids else ''}$A {eos}", "$A $B")
    if "<s>" in ids and class_name in ("XLMRobertaTokenizer", "CamembertTokenizer"):
        templates = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
    elif class_name == "MBartTokenizer":
        language = str(config.get("src_lang") or "en_XX")
        templates = (f"$A </s> {language if language in ids else 'en_XX'}", "$A $B </s>")
    elif eos == "[SEP]" and "[CLS]" in ids:
        templates = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]")
    is_unnamed = vocabulary is None and class_name in (None, FILE_CLASS)
    is_llama = class_name in _BPE_CLASSES or (is_unnamed and (has_bytes or "add_bos_token" in config))
    if is_llama:
        bos = "<s>" if "<s>" in ids else "<bos>"
        if "add_bos_token" not in config:
            _LOG.warning("No add_bos_token in the config: %s begins each text; transformers 5 adds none.", bos)
        default = {"bos_token": bos, "eos_token": eos, "add_bos_token": True}
        config = default | ({"tokenizer_class": "LlamaTokenizer"} if is_bpe else {}) | config
        templates = _bos_template(config, ids)
    elif is_unnamed:
        ending = f"{eos} ends each text, as in T5" if eos else "no token ends a text"
        _LOG.warning("tokenizer_config.json names no class: %s.", ending)
    if class_name in (UNIGRAM if is_bpe else _BPE_CLASSES):
        made = ("a unigram model of this BPE" if is_bpe else "BPE of this unigram") + " model"
        _LOG.warning("%s makes %s; its ids are the sentencepiece library's here.", class_name, made)
    data = _tokenizer_json(model_json, ids, added, templates, steps)
    roles = {"eos_token": eos, "unk_token": unk, "pad_token": "<pad>"}
    named: JsonDict = {role: token for role, token in roles.items() if token in ids}
    is_separate = vocabulary is not None and (without_id or not is_bpe)
    follows_library = class_name in _SENTENCEPIECE_CLASSES or (class_name in _BPE_CLASSES and not is_bpe)
    named |= {LONGEST_MATCH: True} if follows_library else {}
    named |= {AROUND_SPECIAL: " " if is_marian else ""} if is_marian or class_name == "M2M100Tokenizer" else {}
    return Tokenizer(data, named | config | ({"peasy_vocab_size": len(ids)} if is_separate else {}))


def _piece_ids(
    pieces: Sequence[tuple[str, float, int]], vocabulary: Mapping[str, int] | None, config: JsonDict
) -> tuple[dict[str, int], list[str]]:
    """Return the ids of pieces, and more special tokens: languages, XLM-R's mask, T5's sentinels."""
    if vocabulary is not None:
        listed = config.get("additional_special_tokens")
        languages = [str(token) for token in listed if token not in vocabulary] if isinstance(listed, list) else []
        return {**vocabulary, **{name: len(vocabulary) + i for i, name in enumerate(languages)}}, languages
    names, more, name = [piece for piece, _, _ in pieces], ["<pad>", "<mask>"], config.get("tokenizer_class")
    if name == "XLMRobertaTokenizer":
        names = ["<s>", "<pad>", "</s>", "<unk>", *names[3:], "<mask>"]
    elif name == "MBartTokenizer":
        names = ["<s>", "<pad>", "</s>", "<unk>", *names[3:], *_MBART_LANGUAGES, "<mask>"]
        more = [*more, *_MBART_LANGUAGES]
    elif name == "PegasusTokenizer":
        masks = ["<mask_2>", "<mask_1>", *(f"<unk_{i}>" for i in range(2, 103))]
        names, more = [*names[:2], *masks, *names[2:]], [*more, *masks]
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
        known = (pair for pair in splits if pair[0] in rank and pair[1] in rank)
        merges += sorted(known, key=lambda pair: (rank[pair[0]], rank[pair[1]]))
    vocabulary = {piece: id for id, piece in enumerate(ordered)}
    return {"type": "BPE", "vocab": vocabulary, "merges": [*map(list, merges)], "unk_token": unk, "fuse_unk": True}


def _sentencepiece_steps(normalisation: Mapping[int, int | bytes], has_bytes: bool) -> JsonDict:
    """Return the steps of a file's normalisation: character map (2), space before a text (3), no more spaces (4)."""
    charsmap = base64.b64encode(_require_bytes(normalisation.get(2, b""))).decode("ascii")
    adds_space = bool(normalisation.get(3, 1))
    patterns = ((" {2,}", " "), (r"\A | \z", "")) if normalisation.get(4, 1) else ()
    normalizers = [
        *([{"type": "Precompiled", "precompiled_charsmap": charsmap}] if charsmap else []),
        *({"type": "Replace", "pattern": {"Regex": regex}, "content": content} for regex, content in patterns),
        *([{"type": "Prepend", "prepend": "▁"}] if adds_space else []),
    ]
    remove_prefix = {"type": "Replace", "pattern": {"String": UNREACHABLE_PREFIX}, "content": ""}
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if adds_space else []
    decoders = (
        [*BYTE_FALLBACK_DECODERS, *strip] if has_bytes else [space | ({"prepend_scheme": "always"} if strip else {})]
    )
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": space,
        "decoder": {"type": "Sequence", "decoders": [remove_prefix, *decoders]},
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


def _read_model(data: bytes) -> tuple[list[tuple[str, float, int]], dict[int, int | bytes], bool]:
    """Return the pieces of a sentencepiece file with score and type, its normalisation, and whether it is BPE."""
    pieces: list[tuple[str, float, int]] = []
    normalisation, kind = dict[int, int | bytes](), _UNIGRAM
    for field, value in _message_fields(data):
        if field == 1:
            pieces.append(_read_piece(_require_bytes(value)))
            if len(pieces) > _MAX_PIECES:
                raise InvalidInput(f"The sentencepiece model has more than {_MAX_PIECES:,} pieces.", hint=_SAVE_HINT)
        elif field == 2:
            kind = dict(_message_fields(_require_bytes(value))).get(3, _UNIGRAM)  # type: ignore[assignment]
        elif field == 3:
            normalisation = dict(_message_fields(_require_bytes(value)))
    if not pieces:
        raise InvalidInput("The file is not a sentencepiece model: it has no pieces.")
    if kind not in (_UNIGRAM, _BPE):
        raise InvalidInput("The sentencepiece model is neither a unigram nor a BPE model.")
    return pieces, normalisation, kind == _BPE


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
