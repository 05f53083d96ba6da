"""The tokenizer: text to ids and back, on the `tokenizers` library, with what a model needs to know beside it."""

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
"""In front of a piece that has an id but is never cut from a text (see sentencepiece.py); private, so in no text."""

_ROLES = {
    "bos": (("bos_token", "cls_token"), ("<bos>", "<s>", "<|begin_of_text|>", "[CLS]", "<|endoftext|>")),
    "eos": (("eos_token", "sep_token"), ("<eos>", "</s>", "<|end_of_text|>", "[SEP]", "<|endoftext|>")),
    "pad": (("pad_token",), ("<pad>", "[PAD]")),
    "unk": (("unk_token",), ("<unk>", "[UNK]")),
    "mask": (("mask_token",), ("<mask>", "[MASK]")),
}
"""Each role: the settings that name its token, and the usual names where there are no settings."""


@dataclass(frozen=True)
class Special:
    """The ids of tokens that are not text; None where the tokenizer has none."""

    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    unk: int | None = None
    mask: int | None = None


class Tokenizer:
    """Text to ids and back. Make one by `Tokenizer.load`, `Tokenizer.from_json` or `peasy.text.train`.

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
        """From the text of a tokenizer.json, and of the tokenizer_config.json that stood beside it."""
        try:
            return cls(_parse(text, FILE), _parse(settings, SETTINGS) if settings is not None else None)
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error.message}", hint=error.hint) from None

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """From a tokenizer.json, or the folder that holds one."""
        path = Path(path)
        path = path / FILE if path.is_dir() else path
        beside = path.parent / SETTINGS
        if not path.is_file():
            raise NotFound(f"There is no tokenizer file {path}.")
        settings = beside.read_bytes() if beside.is_file() and not beside.is_symlink() else None
        try:
            return cls.from_json(path.read_bytes(), settings, where=path)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json at `path`, and beside it the settings (names of special tokens, chat template)."""
        path = Path(path)
        path.write_text(json.dumps(self._data, ensure_ascii=False) + "\n", encoding="utf-8")
        named = {f"{role}_token": self._pieces.get(id) for role, id in dataclasses.asdict(self.special).items()}
        settings = {key: name for key, name in named.items() if name is not None} | self._settings
        beside = path.parent / path.name.replace("tokenizer.json", SETTINGS)
        if beside != path:
            beside.write_text(json.dumps(settings, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    @property
    def vocabulary(self) -> int:
        """How many ids there are: the rows a table of token vectors needs."""
        return self._known

    def __len__(self) -> int:
        return self._known

    @property
    def kind(self) -> str:
        """The kind of model inside: bpe, wordpiece, wordlevel or unigram."""
        return type(self._inner.model).__name__.lower()

    @property
    def settings(self) -> dict[str, Any]:
        """What stood in tokenizer_config.json, as plain data; nothing in it is ever run."""
        return dict(self._settings)

    @property
    def chat_template(self) -> str | None:
        """The text of the chat template, if the model came with one."""
        template = self._settings.get("chat_template")
        if isinstance(template, list):
            named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
            template = named.get("default")
        return template if isinstance(template, str) else None

    def encode(self, text: str, *, special: bool = True) -> Encoding:
        """The text as tokens; `special` adds what the model expects around a text (`[CLS]`, `<s>`, ...)."""
        self._check_text(text)
        with guarded("Tokenizing"):
            found = self._inner.encode(text, add_special_tokens=special)
            ids, offsets = self._known_ids(found, text), tuple(found.offsets)
        return Encoding(text, tuple(ids), tuple(map(self.piece, ids)), offsets, words_of(text, offsets))

    def ids(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """Only the ids of many texts: the fast way for a corpus."""
        for text in texts:
            self._check_text(text)
        with guarded("Tokenizing"):
            if "peasy_vocabulary" in self._settings:
                found = self._inner.encode_batch(list(texts), add_special_tokens=special)
            else:
                found = self._inner.encode_batch_fast(list(texts), add_special_tokens=special)
            return [self._known_ids(one, text) for one, text in zip(found, texts, strict=True)]

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of ids; `special` keeps the tokens that are not text."""
        with guarded("Reading ids back"):
            return self._inner.decode([int(id) for id in ids], skip_special_tokens=not special)

    def stream(self) -> Stream:
        """A stream to push ids into as they come."""
        return Stream(self)

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """The text of ids piece by piece, never half a character."""
        stream = self.stream()
        for id in ids:
            if text := stream.push(id):
                yield text
        if rest := stream.finish():
            yield rest

    def piece(self, id: int) -> str:
        """The token of an id as a person can read it: `·the`, `⏎`, `<eos>`."""
        if id not in self._shown:
            token = self._pieces.get(id, f"<{id}>")
            plain = id in self._special_ids or id not in self._pieces
            self._shown[id] = token if plain else visible(token, byte_level=self.byte_level)
        return self._shown[id]

    def token(self, id: int) -> str | None:
        """The token of an id as the file writes it."""
        return self._pieces.get(id)

    def id(self, token: str) -> int | None:
        """The id of a token as the file writes it."""
        return self._vocabulary.get(token)

    def to_bytes(self, id: int) -> bytes:
        """The bytes that an id stands for in a byte-level tokenizer; none for a token that is not text."""
        token = self._pieces.get(int(id))
        return b"" if token is None or id in self._special_ids else to_bytes(token)

    def _known_ids(self, found: tokenizers.Encoding, text: str) -> list[int]:
        """With a vocabulary of its own, a piece is looked up there as the text has it; what it has not is unknown."""
        if "peasy_vocabulary" not in self._settings:
            return found.ids
        unknown = self.special.unk
        assert unknown is not None, "checked when the settings were read"
        pairs = zip(found.ids, found.offsets, strict=True)
        known = [self._vocabulary.get(text[slice(*where)], unknown) if id == unknown else id for id, where in pairs]
        return [id if id < self._known else unknown for id in known]

    def _check_text(self, text: str) -> None:
        if self._limit is not None and len(text) > self._limit:
            raise InvalidInput(
                f"The text has {len(text):,} characters; this tokenizer is given at most {self._limit:,}.",
                hint="Its pattern is not one that is known to be fast on long texts. Cut the text into parts.",
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidInput(f"The text holds half a character at place {error.start}.") from None


def _parse(text: str | bytes, name: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except RecursionError:
        raise InvalidInput(f"{name} is nested too deeply.") from None
    except ValueError as error:
        raise InvalidInput(f"{name} is empty." if not text.strip() else f"{name} is not valid JSON: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidInput(f"{name} should hold a table.")
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
    """Pieces from `peasy_vocabulary` on have no row in the model and are read as unknown (see sentencepiece.py)."""
    known = settings.get("peasy_vocabulary", most)
    if type(known) is not int or not 0 < known <= most or ("peasy_vocabulary" in settings and special.unk is None):
        raise InvalidInput(f"{SETTINGS}: peasy_vocabulary is {str(known)[:40]}; 1 to {most:,} are possible.")
    return known
