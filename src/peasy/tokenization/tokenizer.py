"""Tokenizer on the `tokenizers` library, with its special tokens and tokenizer_config.json."""

import codecs
import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path

from peasy.config import parse_json
from peasy.errors import InvalidInput, NotFound, PeasyError
from peasy.parameters import Record
from peasy.tokenization.character_map import find_character_map
from peasy.tokenization.encoding import Encoding, printable, token_to_bytes, token_word_ids
from peasy.tokenization.isolated_encoder import IsolatedEncoder, TokenSpans
from peasy.tokenization.tokenizer_classes import apply_tokenizer_class, with_added_tokens
from peasy.tokenization.tokenizer_validation import (
    JsonDict,
    check_built,
    check_special_ids,
    tokenizer_form,
    validate_tokenizer_json,
)

TOKENIZER_FILE, CONFIG_FILE = "tokenizer.json", "tokenizer_config.json"
LONGEST_MATCH = "peasy_longest_match"
"""Key of tokenizer_config.json: the character map replaces the longest match, as the sentencepiece library does."""

AROUND_SPECIAL = "peasy_around_special"
"""Key of tokenizer_config.json: what decoding writes after a special token: "" for M2M100, " " for Marian."""

CLEAN_UP = "clean_up_tokenization_spaces"
"""Key of tokenizer_config.json: decoding removes the spaces before punctuation."""

UNREACHABLE_PREFIX = "\ue000"
"""Prefix of pieces that have an id but must never match text (see convert.py); a private-use character."""

_ENCODING_SECTIONS = ("normalizer", "pre_tokenizer", "post_processor")
_ANY_MODEL = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
_REPLACEMENT_CHAR = "\ufffd"
_MAX_PENDING = 64
_LONG_TEXT_CHARS = 4096
"""Longer texts are encoded as batches: the library then lets other threads run."""
_MAX_CHAR_BYTES = 4
_LANGUAGE_CODE = re.compile(r">>.*?<<", re.DOTALL)
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")

_SPECIAL_TOKEN_ROLES = {
    "bos": (("bos_token", "cls_token"), ("<bos>", "<s>", "<|begin_of_text|>", "[CLS]", "<|endoftext|>")),
    "eos": (("eos_token", "sep_token"), ("<eos>", "</s>", "<|end_of_text|>", "[SEP]", "<|endoftext|>")),
    "pad": (("pad_token",), ("<pad>", "[PAD]")),
    "unk": (("unk_token",), ("<unk>", "[UNK]")),
    "mask": (("mask_token",), ("<mask>", "[MASK]")),
}
"""For each role: the config keys that name its token, and the usual names if there is no config."""


class SpecialTokenIds(Record):
    """Ids of the special tokens; None where the tokenizer has none."""

    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    unk: int | None = None
    mask: int | None = None


class Tokenizer:
    """Tokenizer: text to ids and back. Made by `load`, `from_json` or `peasy.tokenization.train_tokenizer`.

    >>> from peasy.tokenization import train_tokenizer
    >>> tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, kind="bpe", vocab_size=270)
    >>> tokenizer.decode(tokenizer.encode("the mat").ids)
    'the mat'
    """

    def __init__(self, data: JsonDict, config: JsonDict | None = None) -> None:
        import tokenizers

        self._config = dict(config or {})
        is_foreign = not self._config.keys().isdisjoint(("tokenizer_class", "added_tokens_decoder"))
        given = with_added_tokens(data, self._config) if is_foreign else data
        validated, self._max_chars = validate_tokenizer_json(given)
        self._data = apply_tokenizer_class(validated, self._config) if is_foreign else validated
        form = tokenizer_form(self._data)
        with library_errors("Building the tokenizer"):
            check_built(self._data, _build_steps(self._data))
            self._isolated_encoder, without = None, {}
            self._character_map = find_character_map(self._data) if self._config.get(LONGEST_MATCH) else None
            if not form.is_own:  # built and run in its own process first; here it only decodes
                given = self._data
                if self._character_map is not None:  # it is applied before the other steps of the normalizer
                    steps = given["normalizer"]["normalizers"][1:]
                    given = given | {"normalizer": given["normalizer"] | {"normalizers": steps}}
                self._isolated_encoder = IsolatedEncoder(given)
                without = dict.fromkeys(_ENCODING_SECTIONS)
                self._isolated_encoder.build()
            self._backend = tokenizers.Tokenizer.from_str(json.dumps(self._data | without))
            vocabulary = self._backend.get_vocab(with_added_tokens=True)
        self._token_to_id = {token.removeprefix(UNREACHABLE_PREFIX): id for token, id in vocabulary.items()}
        self._id_to_token = {id: piece for piece, id in self._token_to_id.items()}
        check_special_ids(self._data, self._id_to_token)
        self._printable: dict[int, str] = {}
        self._special_ids = {id for id, added in self._backend.get_added_tokens_decoder().items() if added.special}
        self.byte_level, self._byte_fallback = form.decoders == ["ByteLevel"], "ByteFallback" in form.decoders
        self.word_end = str(self._data["model"].get("end_of_word_suffix") or "") if self.byte_level else ""
        """End-of-word suffix, as of CLIP: a space when decoded, and none at the end of a text."""
        self.decodes_as_a_whole = form.decodes_as_a_whole
        self.cleans_up = bool(self._config.get(CLEAN_UP)) and (self.kind != "bpe" or LONGEST_MATCH in self._config)
        """Decoding removes the spaces before punctuation; as in transformers, not if the library's BPE is used."""
        self._around_special = self._config.get(AROUND_SPECIAL)
        self.strips = self._around_special is not None
        """Decoding removes the spaces around a text."""
        self.special_tokens = _find_special_tokens(self._config, self._token_to_id)
        self.vocab_size = _find_vocab_size(self._config, self.special_tokens, 1 + max(self._id_to_token))
        """Vocabulary size: the number of rows of the token embedding."""

    @classmethod
    def from_json(
        cls, text: str | bytes, config: str | bytes | JsonDict | None = None, *, source: str | Path = TOKENIZER_FILE
    ) -> "Tokenizer":
        """Load from the contents of a tokenizer.json, and of the tokenizer_config.json next to it."""
        try:
            config = _parse(config, CONFIG_FILE) if isinstance(config, (str, bytes)) else config
            return cls(_parse(text, TOKENIZER_FILE), config)
        except InvalidInput as error:
            raise InvalidInput(f"{source}: {error.message}", hint=error.hint) from None

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Load from a tokenizer.json or the folder that contains it."""
        path = Path(path)
        path = path / TOKENIZER_FILE if path.is_dir() else path
        config_path = path.parent / CONFIG_FILE
        if not path.is_file():
            raise NotFound(f"There is no tokenizer file {path}.")
        config = config_path.read_bytes() if config_path.is_file() and not config_path.is_symlink() else None
        try:
            return cls.from_json(path.read_bytes(), config, source=path)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None

    def to_json(self) -> str:
        """Return the text of tokenizer.json."""
        return json.dumps(self._data, ensure_ascii=False) + "\n"

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json to `path`, and next to it tokenizer_config.json (special tokens, chat template)."""
        path = Path(path)
        path.write_text(self.to_json(), encoding="utf-8")
        named = {f"{role}_token": self._id_to_token.get(id) for role, id in vars(self.special_tokens).items()}
        config = {key: name for key, name in named.items() if name is not None} | self._config
        config_path = path.parent / path.name.replace("tokenizer.json", CONFIG_FILE)
        if config_path != path:
            config_path.write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def kind(self) -> str:
        """Tokenizer algorithm: bpe, wordpiece, wordlevel or unigram."""
        return type(self._backend.model).__name__.lower()

    @property
    def config(self) -> JsonDict:
        """Contents of tokenizer_config.json as plain data; nothing in it is executed."""
        return dict(self._config)

    @property
    def chat_template(self) -> str | None:
        """Source of the chat template, if the model has one."""
        template = self._config.get("chat_template")
        if isinstance(template, list):
            named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
            template = named.get("default")
        return template if isinstance(template, str) else None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> Encoding:
        """Encode a text; `add_special_tokens` adds those that the model expects (`[CLS]`, `<s>`, ...)."""
        self._check_text(text)
        ((ids, spans),) = self._encode([text], add_special_tokens=add_special_tokens, offsets=True)
        offsets = tuple(spans)
        return Encoding(text, tuple(ids), self.pieces(ids), offsets, token_word_ids(text, offsets))

    def __call__(self, text: str) -> Encoding:
        """Encode a text: the same as `encode`, as in transformers."""
        return self.encode(text)

    def encode_ids(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return only the ids of a text, with the special tokens that the model expects."""
        self._check_text(text)
        return self._encode([text], add_special_tokens=add_special_tokens, offsets=False)[0][0]

    @cached_property
    def added_ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids of the special tokens that `encode` adds before and after a text."""
        whole, plain = self.encode_ids("a"), self.encode_ids("a", add_special_tokens=False)
        starts = range(len(whole) - len(plain) + 1)
        num_before = next((start for start in starts if whole[start : start + len(plain)] == plain), 0)
        return tuple(whole[:num_before]), tuple(whole[num_before + len(plain) :])

    def with_bos(self, id: int) -> "Tokenizer":
        """Return a copy that begins every text with this token, as in training on whole documents."""
        token = self._id_to_token[id]
        special = {"id": token, "ids": [id], "tokens": [token]}
        begin: JsonDict = {"SpecialToken": {"id": token, "type_id": 0}}
        texts: list[JsonDict] = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
        template = {"type": "TemplateProcessing", "single": [begin, texts[0]], "pair": [begin, *texts]}
        data = self._data | {"post_processor": template | {"special_tokens": {token: special}}}
        return Tokenizer(data, self._config | {"bos_token": token})

    def with_chat_template(self, template: str) -> "Tokenizer":
        """Return a copy with this chat template."""
        changed = copy.copy(self)
        changed._config = self._config | {"chat_template": template}
        return changed

    def encode_batch_ids(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Return only the ids of many texts; fast, for a corpus."""
        for text in texts:
            self._check_text(text)
        encoded = self._encode(texts, add_special_tokens=add_special_tokens, offsets=False)
        return [ids for ids, _ in encoded]

    def _encode(self, texts: Sequence[str], *, add_special_tokens: bool, offsets: bool) -> list[TokenSpans]:
        """Return ids of each text, and offsets if asked for; Marian's language code is a token before a text."""
        if self._around_special != " ":
            return self._encode_text(texts, add_special_tokens, offsets)
        codes = [_LANGUAGE_CODE.match(text) for text in texts]
        rests = [text[code.end() if code else 0 :] for text, code in zip(texts, codes, strict=True)]
        pairs = zip(codes, self._encode_text(rests, add_special_tokens, offsets), strict=True)
        return [self._with_code(code[0], *pair) if code else pair for code, pair in pairs]

    def _with_code(self, code: str, ids: list[int], spans: Sequence[tuple[int, int]]) -> TokenSpans:
        """Return a text's ids and offsets with its language code; one that the vocabulary does not have is unknown."""
        moved = [(start + len(code), end + len(code)) for start, end in spans]
        unknown = self.special_tokens.unk
        id = self._token_to_id.get(code, unknown)
        assert id is not None, "a sentencepiece model has an unknown token"
        return [id, *ids], [(0, len(code)), *moved] if len(spans) == len(ids) else []

    def _encode_text(self, texts: Sequence[str], add_special_tokens: bool, offsets: bool) -> list[TokenSpans]:
        """Return ids of each text, and offsets if asked for."""
        is_mapped = "peasy_vocab_size" in self._config  # this needs offsets
        if self._character_map is None and not is_mapped:
            return self._encode_normalised(texts, add_special_tokens, offsets)
        unchanged = [(text, range(len(text) + 1)) for text in texts]
        normalised = unchanged if self._character_map is None else list(map(self._character_map.normalise, texts))
        encoded = self._encode_normalised([text for text, _ in normalised], add_special_tokens, offsets or is_mapped)
        return [
            (self._map_ids(ids, spans, text), [(sources[start], sources[end]) for start, end in spans])
            for (ids, spans), (text, sources) in zip(encoded, normalised, strict=True)
        ]

    def _encode_normalised(self, texts: Sequence[str], add_special_tokens: bool, offsets: bool) -> list[TokenSpans]:
        """Return ids and offsets of texts after the character map; a foreign tokenizer runs in its own process."""
        if self._isolated_encoder is not None:
            return self._isolated_encoder.encode(texts, add_special_tokens=add_special_tokens, offsets=offsets)
        with library_errors("Tokenizing"):
            if len(texts) == 1 and len(texts[0]) < _LONG_TEXT_CHARS:
                encodings = [self._backend.encode(texts[0], add_special_tokens=add_special_tokens)]
            else:
                encode = self._backend.encode_batch if offsets else self._backend.encode_batch_fast
                encodings = encode(list(texts), add_special_tokens=add_special_tokens)
        return [(encoding.ids, encoding.offsets if offsets else []) for encoding in encodings]

    def decode(self, ids: Iterable[int], *, keep_special_tokens: bool = False, clean_up: bool = True) -> str:
        """Decode ids to text, without special tokens unless `keep_special_tokens`.

        `clean_up`: without the spaces before punctuation and around the text, if its class or config asks for it.
        """
        ids = [int(id) for id in ids]
        with library_errors("Decoding"):
            if keep_special_tokens and self._around_special is not None:
                text = self._decode_parts(ids)
            else:
                text = self._backend.decode(ids, skip_special_tokens=not keep_special_tokens)
        text = text.replace(self.word_end, " ").strip() if self.word_end else text
        text = text.strip() if clean_up and self.strips else text
        return _clean_up(text) if clean_up and self.cleans_up else text

    def _decode_parts(self, ids: Sequence[int]) -> str:
        """Return the text with special tokens; the parts between them are texts of their own."""
        parts = ((special, list(part)) for special, part in groupby(ids, self.is_special))
        return "".join(
            "".join(f"{self.token(id)}{self._around_special}" for id in part) if special else self._backend.decode(part)
            for special, part in parts
        )

    def decode_continuation(self, prompt: Sequence[int], ids: Sequence[int]) -> str:
        """Decode ids that follow a prompt: what they add to its text, with the space before their first word."""
        return self.decode([*prompt, *ids])[len(self.decode(prompt)) :]

    def piece(self, id: int) -> str:
        """Return the printable form of a token: `·the`, `⏎`, `<eos>`."""
        if id not in self._printable:
            token = self._id_to_token.get(id, f"<{id}>")
            plain = id in self._special_ids or id not in self._id_to_token
            self._printable[id] = token if plain else printable(token, byte_level=self.byte_level and not self.word_end)
        return self._printable[id]

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Return the printable forms of a text's tokens; an eos token that begins it is shown as `<bos>`."""
        pieces, special = tuple(map(self.piece, ids)), self.special_tokens
        begins_with_eos = bool(ids) and ids[0] == special.eos == special.bos and pieces[0] == "<eos>"
        return ("<bos>", *pieces[1:]) if begins_with_eos else pieces

    def token(self, id: int) -> str | None:
        """Return the token of an id as in the vocabulary file."""
        return self._id_to_token.get(id)

    def id(self, token: str) -> int | None:
        """Return the id of a token as in the vocabulary file."""
        return self._token_to_id.get(token)

    def to_bytes(self, id: int, *, is_first: bool = False, keep_word_end: bool = False) -> bytes:
        """Return the bytes that a token adds to a text, at its beginning if `is_first`; empty for special tokens.

        `keep_word_end` leaves an end-of-word suffix as it is; else it is a space.
        """
        id = int(id)
        token = self._id_to_token.get(id)
        if token is None or id in self._special_ids:
            return b""
        if self.byte_level:
            raw = token_to_bytes(token)
            return raw.replace(self.word_end.encode(), b" ") if self.word_end and not keep_word_end else raw
        if self.is_byte(id):
            return bytes([int(token[3:5], 16)])
        before = () if is_first else self._word_ids
        start = self.decode(before, clean_up=not self.strips)
        return self.decode([*before, id], clean_up=not self.strips)[len(start) :].encode()

    @cached_property
    def _word_ids(self) -> tuple[int, ...]:
        """Id of any token with a text of its own: what follows it is not at the beginning of a text."""
        ids = (id for id in self._id_to_token if id not in self._special_ids and not self.is_byte(id))
        return tuple(islice((id for id in ids if self.decode([id]).strip()), 1))

    def is_byte(self, id: int) -> bool:
        """True for a byte of a character that is not in the vocabulary: `<0xE2>`."""
        return self._byte_fallback and _BYTE_TOKEN.fullmatch(self._id_to_token.get(id, "")) is not None

    def is_special(self, id: int) -> bool:
        """True for a special token, which is not part of the text."""
        return id in self._special_ids

    @property
    def is_isolated(self) -> bool:
        """True if texts are encoded in another process, so that a call may wait."""
        return self._isolated_encoder is not None

    def _map_ids(self, ids: list[int], offsets: Sequence[tuple[int, int]], text: str) -> list[int]:
        """Map ids to the separate vocabulary of a sentencepiece model, if any; missing pieces become unknown."""
        if "peasy_vocab_size" not in self._config:
            return ids
        unknown = self.special_tokens.unk
        assert unknown is not None, "checked when the config was read"
        pairs = zip(ids, offsets, strict=True)
        ids = [self._token_to_id.get(text[slice(*span)], unknown) if id == unknown else id for id, span in pairs]
        return [id if id < self.vocab_size else unknown for id in ids]

    def _check_text(self, text: str) -> None:
        if not isinstance(text, str):
            raise InvalidInput(f"A text should be a string, not {type(text).__name__}: tokenize texts one by one.")
        if self._max_chars is not None and len(text) > self._max_chars:
            raise InvalidInput(
                f"The text has {len(text):,} characters; the limit for this tokenizer is {self._max_chars:,}.",
                hint="Its regular expression may be slow on long texts. Split the text into parts.",
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            where = f"at position {error.start}"
            raise InvalidInput(f"The text has half a character (an unpaired surrogate) {where}.") from None


class IncrementalDecoder:
    """Incremental decoder of what follows a prompt: `push` returns the text that is complete so far, `finish` the rest.

    The concatenated pieces equal `decode_continuation` of all ids. Byte-level tokens are decoded by Python's UTF-8
    decoder; the text of others depends on their neighbours: it is the difference of two decodes, from a token before.
    If the decoder may change all of the text at a later token, the text comes at the end.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._ids = list(prompt) if tokenizer.word_end or tokenizer.decodes_as_a_whole else self._last_ids(prompt)
        self._num_emitted = len(self._ids)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._word_ends = _WordEnds(tokenizer.word_end) if tokenizer.word_end else None
        self._strip = _WordEnds() if tokenizer.strips else None
        if self._strip is not None:
            self._strip.push(tokenizer.decode(prompt, clean_up=False), is_last=False)
        self._clean_up = _CleanUp(tokenizer, prompt) if tokenizer.cleans_up else None
        # The bytes of an incomplete character at the end of the prompt were already shown, as a replacement character.
        self._num_shown = len(tokenizer.decode(self._ids)) if tokenizer.byte_level else 0
        for id in self._ids if tokenizer.byte_level else ():
            self.push(id)

    def _last_ids(self, prompt: Sequence[int]) -> list[int]:
        """Return the end of the prompt on which the text of the next token depends."""
        last: list[int] = []
        for id in map(int, reversed(prompt)):
            if not self._tokenizer.is_special(id):
                last.append(id)
                needed = _MAX_CHAR_BYTES if self._tokenizer.byte_level else 1 + len(last) * self._tokenizer.is_byte(id)
                if len(last) >= needed:
                    break
        return last[::-1]

    def push(self, id: int) -> str:
        """Return the text that this id completes; empty while a character is incomplete."""
        return self._cleaned(self._push(int(id)))

    def _cleaned(self, text: str, is_last: bool = False) -> str:
        text = text if self._strip is None else self._strip.push(text, is_last)
        return text if self._clean_up is None else self._clean_up.push(text, is_last)

    def _push(self, id: int) -> str:
        if self._tokenizer.byte_level:
            return self._push_bytes(self._tokenizer.to_bytes(id, keep_word_end=True))
        if self._tokenizer.is_special(id):
            return ""
        self._ids.append(id)
        # One invalid byte makes all bytes before it invalid.
        if self._tokenizer.is_byte(id) or self._tokenizer.decodes_as_a_whole:
            return ""
        text = self._tokenizer.decode(self._ids, clean_up=False)
        is_partial = text.endswith(_REPLACEMENT_CHAR) and len(self._ids) - self._num_emitted < _MAX_PENDING
        return "" if is_partial else self._emit(text)

    def finish(self) -> str:
        """Return the pending text; bytes of an incomplete character become a replacement character."""
        if self._tokenizer.byte_level:
            return self._push_bytes(b"", is_last=True)
        return self._cleaned(self._emit(self._tokenizer.decode(self._ids, clean_up=False)), is_last=True)

    def _push_bytes(self, data: bytes, is_last: bool = False) -> str:
        text = self._utf8.decode(data, final=is_last)
        return self._unshown(text if self._word_ends is None else self._word_ends.push(text, is_last))

    def _unshown(self, text: str) -> str:
        """Return the text without what the prompt already showed as replacement characters."""
        skipped = min(self._num_shown, len(text))
        self._num_shown -= skipped
        return text[skipped:]

    def _emit(self, text: str) -> str:
        before = self._tokenizer.decode(self._ids[: self._num_emitted], clean_up=False)
        if text == before:
            return ""
        self._ids = self._ids[self._num_emitted :]
        self._num_emitted = len(self._ids)
        self._num_shown += max(len(before) - len(text), 0)
        return self._unshown(text[len(before) :])


class _WordEnds:
    """Replaces end-of-word suffixes by spaces, if there are any, and strips the text; holds back what may be either."""

    def __init__(self, suffix: str = "") -> None:
        self._suffix, self._pending, self._spaces, self._began = suffix, "", "", False

    def push(self, text: str, is_last: bool) -> str:
        *words, rest = (self._pending + text).split(self._suffix) if self._suffix else [text]
        sizes = range(0 if is_last else min(len(rest), len(self._suffix) - 1), 0, -1)
        held = next((size for size in sizes if self._suffix.startswith(rest[-size:])), 0)
        self._pending = rest[len(rest) - held :]
        text = self._spaces + " ".join([*words, rest[: len(rest) - held]])
        text = text if self._began else text.lstrip()
        complete = text.rstrip()
        self._began, self._spaces = self._began or bool(complete), text[len(complete) :]
        return complete


_SHORTENED = {f" {mark}": mark for mark in (".", "?", "!", ",")} | {" ' ": "'"}
_SHORTENED |= {f" {ending}": ending for ending in ("n't", "'m", "'s", "'ve", "'re")}
_CUT = re.compile(r"(?<! ') (?=[^'])")


def _clean_up(text: str) -> str:
    """Return a text without spaces before punctuation, one rule after the other, as in transformers."""
    for pattern, content in _SHORTENED.items():
        text = text.replace(pattern, content)
    return text


class _CleanUp:
    """Removes spaces before punctuation from a text that comes in parts; holds back its end.

    Each pattern begins with a space, and two rules act together only around a quote: cut before any other space, the
    parts are what the whole would be.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._pending = tokenizer.decode(prompt, clean_up=False)
        self._num_shown = len(_clean_up(self._pending))

    def push(self, text: str, is_last: bool = False) -> str:
        self._pending += text
        end = len(self._pending) if is_last else max((cut.start() for cut in _CUT.finditer(self._pending)), default=0)
        cleaned, self._pending = _clean_up(self._pending[:end]), self._pending[end:]
        skipped = min(self._num_shown, len(cleaned))
        self._num_shown -= skipped
        return cleaned[skipped:]


def _parse(text: str | bytes, name: str) -> JsonDict:
    data = parse_json(text, name)
    if not isinstance(data, dict):
        raise InvalidInput(f"{name} should contain a JSON object.")
    return data


def _build_steps(data: JsonDict) -> dict[str, object]:
    """Return the steps of all sections as the library builds and writes them; none of them is run."""
    import tokenizers

    backend = tokenizers.Tokenizer.from_str(json.dumps(data | {"added_tokens": [], "model": _ANY_MODEL}))
    steps = {section: getattr(backend, section) for section in (*_ENCODING_SECTIONS, "decoder")}
    return {section: step and json.loads(step.__getstate__()) for section, step in steps.items()}


def _find_special_tokens(config: JsonDict, vocabulary: Mapping[str, int]) -> SpecialTokenIds:
    ids = {}
    for role, (keys, default_names) in _SPECIAL_TOKEN_ROLES.items():
        named = [config[key] for key in keys if config.get(key) is not None]
        names = [name.get("content") if isinstance(name, dict) else name for name in named]
        if not any(key in config for key in keys):
            names = list(default_names)
        ids[role] = next((vocabulary[name] for name in names if isinstance(name, str) and name in vocabulary), None)
    return SpecialTokenIds(**ids)


def _find_vocab_size(config: JsonDict, special: SpecialTokenIds, maximum: int) -> int:
    """Return the vocabulary size; ids from `peasy_vocab_size` on are mapped to unknown (see convert.py)."""
    known = config.get("peasy_vocab_size", maximum)
    if type(known) is not int or not 0 < known <= maximum or ("peasy_vocab_size" in config and special.unk is None):
        raise InvalidInput(f"{CONFIG_FILE}: peasy_vocab_size is {str(known)[:40]}; it should be 1 to {maximum:,}.")
    return known


@contextmanager
def library_errors(action: str) -> Iterator[None]:
    """Convert any exception of the library to an InvalidInput that names the action.

    >>> with library_errors("Reading x.json"):
    ...     raise ValueError("no vocab")
    Traceback (most recent call last):
    peasy.errors.InvalidInput: Reading x.json failed: no vocab.
    """
    try:
        yield
    except (PeasyError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:  # a panic of the Rust library is no Exception
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InvalidInput(f"{action} failed: {reason}.") from None
