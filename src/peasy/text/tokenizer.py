"""Tokenizer on the `tokenizers` library, with its special tokens and tokenizer_config.json."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from peasy.errors import InvalidInput, NotFound
from peasy.text.border import guarded
from peasy.text.encoding import Encoding, words_of
from peasy.text.guard import checked, kinds
from peasy.text.stream import Stream
from peasy.text.visible import to_bytes, visible

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
ELSEWHERE = "\ue000"
"""Prefix of pieces that have an id but must never match text (see sentencepiece.py); a private-use character."""

_ROLES = {
    "bos": (("bos_token", "cls_token"), ("<bos>", "<s>", "<|begin_of_text|>", "[CLS]", "<|endoftext|>")),
    "eos": (("eos_token", "sep_token"), ("<eos>", "</s>", "<|end_of_text|>", "[SEP]", "<|endoftext|>")),
    "pad": (("pad_token",), ("<pad>", "[PAD]")),
    "unk": (("unk_token",), ("<unk>", "[UNK]")),
    "mask": (("mask_token",), ("<mask>", "[MASK]")),
}
"""For each role: the config keys that name its token, and the usual names if there is no config."""


@dataclass(frozen=True)
class Special:
    """Ids of the special tokens; None where the tokenizer has none."""

    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    unk: int | None = None
    mask: int | None = None


class Tokenizer:
    """Tokenizer: text to ids and back. Made by `load`, `from_json` or `peasy.tokenization.train_tokenizer`.

    >>> from peasy.text import train
    >>> tokenizer = train(["the cat sat on the mat"] * 9, kind="bpe", vocabulary=270)
    >>> tokenizer.decode(tokenizer.encode("the mat").ids)
    'the mat'
    """

    def __init__(self, data: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> None:
        self._data, self._limit = checked(dict(data))
        with guarded("Building the tokenizer"):
            self._inner = tokenizers.Tokenizer.from_str(json.dumps(self._data))
            vocabulary = self._inner.get_vocab(with_added_tokens=True)
        self._vocabulary = {token.removeprefix(ELSEWHERE): id for token, id in vocabulary.items()}
        self._settings = dict(settings or {})
        self._pieces = {id: piece for piece, id in self._vocabulary.items()}
        self._shown: dict[int, str] = {}
        self._special_ids = {id for id, added in self._inner.get_added_tokens_decoder().items() if added.special}
        self.byte_level = kinds(self._data, "decoder") == ["ByteLevel"]
        self.special = _special(self._settings, self._vocabulary)
        self._known = _known(self._settings, self.special, 1 + max(self._pieces))

    @classmethod
    def from_json(
        cls, text: str | bytes, settings: str | bytes | None = None, *, where: str | Path = FILE
    ) -> "Tokenizer":
        """Load from the contents of a tokenizer.json, and of the tokenizer_config.json next to it."""
        try:
            return cls(_parse(text, FILE), _parse(settings, SETTINGS) if settings is not None else None)
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error.message}", hint=error.hint) from None

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Load from a tokenizer.json or the folder that contains it."""
        path = Path(path)
        path = path / FILE if path.is_dir() else path
        config_path = path.parent / SETTINGS
        if not path.is_file():
            raise NotFound(f"There is no tokenizer file {path}.")
        settings = config_path.read_bytes() if config_path.is_file() and not config_path.is_symlink() else None
        try:
            return cls.from_json(path.read_bytes(), settings, where=path)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json to `path`, and next to it tokenizer_config.json (special tokens, chat template)."""
        path = Path(path)
        path.write_text(json.dumps(self._data, ensure_ascii=False) + "\n", encoding="utf-8")
        named = {f"{role}_token": self._pieces.get(id) for role, id in dataclasses.asdict(self.special).items()}
        settings = {key: name for key, name in named.items() if name is not None} | self._settings
        config_path = path.parent / path.name.replace("tokenizer.json", SETTINGS)
        if config_path != path:
            config_path.write_text(json.dumps(settings, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    @property
    def vocabulary(self) -> int:
        """Vocabulary size: the number of rows of the token embedding."""
        return self._known

    def __len__(self) -> int:
        return self._known

    @property
    def kind(self) -> str:
        """Tokenizer algorithm: bpe, wordpiece, wordlevel or unigram."""
        return type(self._inner.model).__name__.lower()

    @property
    def settings(self) -> dict[str, Any]:
        """Contents of tokenizer_config.json as plain data; nothing in it is executed."""
        return dict(self._settings)

    @property
    def chat_template(self) -> str | None:
        """Source of the chat template, if the model has one."""
        template = self._settings.get("chat_template")
        if isinstance(template, list):
            named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
            template = named.get("default")
        return template if isinstance(template, str) else None

    def encode(self, text: str, *, special: bool = True) -> Encoding:
        """Encode a text; `add_special_tokens` adds those that the model expects (`[CLS]`, `<s>`, ...)."""
        self._check_text(text)
        with guarded("Tokenizing"):
            encoding = self._inner.encode(text, add_special_tokens=special)
            ids, offsets = self._known_ids(encoding, text), tuple(encoding.offsets)
        return Encoding(text, tuple(ids), tuple(map(self.piece, ids)), offsets, words_of(text, offsets))

    def ids(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """Return only the ids of many texts; fast, for a corpus."""
        for text in texts:
            self._check_text(text)
        with guarded("Tokenizing"):
            if "peasy_vocabulary" in self._settings:
                encodings = self._inner.encode_batch(list(texts), add_special_tokens=special)
            else:
                encodings = self._inner.encode_batch_fast(list(texts), add_special_tokens=special)
            return [self._known_ids(encoding, text) for encoding, text in zip(encodings, texts, strict=True)]

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Decode ids to text, without special tokens unless `keep_special_tokens`."""
        with guarded("Decoding"):
            return self._inner.decode([int(id) for id in ids], skip_special_tokens=not special)

    def stream(self) -> Stream:
        """Return an incremental decoder."""
        return Stream(self)

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """Decode ids incrementally; never yields a partial character."""
        stream = self.stream()
        for id in ids:
            if text := stream.push(id):
                yield text
        if rest := stream.finish():
            yield rest

    def piece(self, id: int) -> str:
        """Return the printable form of a token: `·the`, `⏎`, `<eos>`."""
        if id not in self._shown:
            token = self._pieces.get(id, f"<{id}>")
            plain = id in self._special_ids or id not in self._pieces
            self._shown[id] = token if plain else visible(token, byte_level=self.byte_level)
        return self._shown[id]

    def token(self, id: int) -> str | None:
        """Return the token of an id as in the vocabulary file."""
        return self._pieces.get(id)

    def id(self, token: str) -> int | None:
        """Return the id of a token as in the vocabulary file."""
        return self._vocabulary.get(token)

    def to_bytes(self, id: int) -> bytes:
        """Return the bytes of a token of a byte-level tokenizer; empty for special tokens."""
        token = self._pieces.get(int(id))
        return b"" if token is None or id in self._special_ids else to_bytes(token)

    def _known_ids(self, found: tokenizers.Encoding, text: str) -> list[int]:
        """Map ids to the separate vocabulary of a sentencepiece model, if any; missing pieces become unknown."""
        if "peasy_vocabulary" not in self._settings:
            return found.ids
        unknown = self.special.unk
        assert unknown is not None, "checked when the config was read"
        pairs = zip(found.ids, found.offsets, strict=True)
        ids = [self._vocabulary.get(text[slice(*span)], unknown) if id == unknown else id for id, span in pairs]
        return [id if id < self._known else unknown for id in ids]

    def _check_text(self, text: str) -> None:
        if self._limit is not None and len(text) > self._limit:
            raise InvalidInput(
                f"The text has {len(text):,} characters; the limit for this tokenizer is {self._limit:,}.",
                hint="Its regular expression may be slow on long texts. Split the text into parts.",
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"The text has half a character (an unpaired surrogate) at position {error.start}."
            ) from None


def _parse(text: str | bytes, name: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except RecursionError:
        raise InvalidInput(f"{name} is nested too deeply.") from None
    except ValueError as error:
        raise InvalidInput(f"{name} is empty." if not text.strip() else f"{name} is not valid JSON: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidInput(f"{name} should contain a JSON object.")
    return data


def _special(settings: Mapping[str, Any], vocabulary: Mapping[str, int]) -> Special:
    return Special(**{role: _role(settings, vocabulary, *where) for role, where in _ROLES.items()})


def _role(
    settings: Mapping[str, Any], vocabulary: Mapping[str, int], keys: Sequence[str], usual: Sequence[str]
) -> int | None:
    named = [settings[key] for key in keys if settings.get(key) is not None]
    names = [name.get("content") if isinstance(name, dict) else name for name in named] or usual
    return next((vocabulary[name] for name in names if isinstance(name, str) and name in vocabulary), None)


def _known(settings: Mapping[str, Any], special: Special, most: int) -> int:
    """Return the vocabulary size; ids from `peasy_vocabulary` on are mapped to unknown (see sentencepiece.py)."""
    known = settings.get("peasy_vocabulary", most)
    if type(known) is not int or not 0 < known <= most or ("peasy_vocabulary" in settings and special.unk is None):
        raise InvalidInput(f"{SETTINGS}: peasy_vocabulary is {str(known)[:40]}; it should be 1 to {most:,}.")
    return known
