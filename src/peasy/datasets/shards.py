"""Token shards: a tokenized corpus on disk, written in constant memory, read through memory maps.

A folder holds `shards.json` and, for each split and column, the numbers (`train.tokens.bin`) and the document ends
(`train.tokens.ends`). The columns are `tokens` for text, `source` and `target` for pairs, `tokens` and `labels`
for labelled text, `tokens` and `answers` (1 = a token of an answer) for conversations. Every block of every file has
its SHA-256 in the header and is checked when it is first read.
"""

import glob
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TypedDict

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import ArrayLike, NDArray

from peasy.atomic import atomic_dir
from peasy.config import JsonDict
from peasy.datasets.corpus import Conversation, Corpus, LabelledText, Sample, sample_texts
from peasy.errors import InvalidInput, NotFound
from peasy.tokenization import Tokenizer
from peasy.tokenization.chat_template import encode_conversations

BLOCK_BYTES = 1 << 22
"""Bytes per SHA-256."""

_DTYPES = {"uint16", "uint32", "int64"}


class _ArrayDescription(TypedDict):
    """What a reader needs to know of a file: dtype, number of items, bytes per hash, and the hashes."""

    dtype: str
    items: int
    block: int
    sha256: list[str]


class CheckedArrayWriter:
    """Appends numbers to a file; `finish` returns the description that the reader needs."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._file = path.open("xb")
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._buffer = bytearray()
        self._hashes: list[str] = []
        self.num_items = 0
        self.last: int | None = None

    def write(self, numbers: ArrayLike) -> None:
        """Append numbers; all must fit the dtype of the file."""
        values = np.asarray(numbers, dtype=np.int64)
        if not values.size:
            return
        assert 0 <= int(values.min()) <= int(values.max()) <= np.iinfo(self._dtype).max, "too large for this dtype"
        self.num_items += values.size
        self.last = int(values[-1])
        self._buffer += values.astype(self._dtype).tobytes()
        while len(self._buffer) >= BLOCK_BYTES:
            self._write_block(BLOCK_BYTES)

    def finish(self) -> _ArrayDescription:
        """Write the rest, and return the description of the file."""
        if self._buffer:
            self._write_block(len(self._buffer))
        return {"dtype": self._dtype.name, "items": self.num_items, "block": BLOCK_BYTES, "sha256": self._hashes}

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()

    def _write_block(self, size: int) -> None:
        block = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._file.write(block)
        self._hashes.append(hashlib.sha256(block).hexdigest())


class CheckedArray:
    """Reads what the writer wrote; a block is checked when it is first read."""

    def __init__(self, path: Path, description: _ArrayDescription) -> None:
        self.path = path
        self._hashes, self._block_bytes = description["sha256"], description["block"]
        if description["dtype"] not in _DTYPES:
            raise InvalidInput(f"{path}: unsupported dtype {description['dtype']}.")
        dtype, items = np.dtype(description["dtype"]).newbyteorder("<"), int(description["items"])
        size = path.stat().st_size if path.is_file() else -1
        if size != items * dtype.itemsize or len(self._hashes) != -(-size // self._block_bytes):
            status = "is missing" if size < 0 else f"has {size:,} bytes"
            message = f"{path} {status} and should have {items * dtype.itemsize:,} bytes."
            raise InvalidInput(message, hint="Prepare the corpus again.")
        self._values = np.memmap(path, dtype=dtype, mode="r") if items else np.empty(0, dtype=dtype)
        self._verified = np.zeros(len(self._hashes), dtype=bool)

    def __len__(self) -> int:
        return len(self._values)

    def rows(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Return `length` numbers from each start."""
        return self.ragged(starts, np.full(len(starts), length), length)

    def ragged(self, starts: NDArray[np.int64], lengths: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        """Return rows of `width`: the first `lengths` numbers come from each start, the rest is arbitrary."""
        if not width or not len(starts):
            return np.zeros((len(starts), width), dtype=np.int64)
        last = starts + lengths - 1
        assert 0 <= int(starts.min()) <= int(last.max(initial=0)) < len(self), "a window ends outside the file"
        self._check(starts, last)
        indices = np.minimum(starts[:, None] + np.arange(width), np.maximum(last, 0)[:, None])
        numbers: NDArray[np.int64] = self._values[indices].astype(np.int64)
        return numbers

    def verify(self) -> None:
        """Check every block that was not checked yet."""
        for block in np.flatnonzero(~self._verified):
            self._check_block(int(block))

    def _check(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> None:
        if self._verified.all():
            return
        size = self._block_bytes // self._values.itemsize
        for start, end in set(zip((first // size).tolist(), (last // size).tolist(), strict=True)):
            for block in range(start, end + 1):
                if not self._verified[block]:
                    self._check_block(block)

    def _check_block(self, block: int) -> None:
        size = self._block_bytes // self._values.itemsize
        values = self._values[block * size : (block + 1) * size]
        if hashlib.sha256(values.tobytes()).hexdigest() != self._hashes[block]:
            start, end = block * self._block_bytes, (block + 1) * self._block_bytes
            message = f"{self.path} is corrupt between bytes {start:,} and {end:,}."
            raise InvalidInput(message, hint="Delete the folder and prepare the corpus again.")
        self._verified[block] = True


_HEADER = "shards.json"
_FORMAT = {"format": "peasy-shards", "version": 1}
COLUMNS = {"text": ("tokens",), "pairs": ("source", "target"), "labelled": ("tokens", "labels")}
COLUMNS |= {"chat": ("tokens", "answers")}
_ProgressCallback = Callable[[int, int], None]
"""Progress callback: called with characters done and total characters."""

_BATCH_CHARACTERS = 1 << 19
_LOCK_FILE = ".writing"
_SPLIT_NAME = re.compile(r"[a-z]{1,20}")


class TokenColumn:
    """One column of a split: the token ids of all documents, concatenated."""

    def __init__(self, values: CheckedArray, ends: CheckedArray | None) -> None:
        self.values = values
        self._ends = ends

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self.values)

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.values if self._ends is None else self._ends)

    def windows(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Return `length` tokens from each start, as rows."""
        return self.values.rows(starts, length)

    def bounds(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return start and end of documents, by index."""
        if self._ends is None:
            return indices, indices + 1
        ends = self._ends.rows(indices, 1)[:, 0]
        starts = np.where(indices > 0, self._ends.rows(np.maximum(indices - 1, 0), 1)[:, 0], 0)
        return starts, ends

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lengths of documents, by index."""
        starts, ends = self.bounds(indices)
        return ends - starts

    def document(self, index: int) -> NDArray[np.int64]:
        """Return one document."""
        (start,), (end,) = self.bounds(np.array([index], dtype=np.int64))
        numbers: NDArray[np.int64] = self.values.rows(np.array([start], dtype=np.int64), int(end - start))[0]
        return numbers


class TokenShards:
    """Opened shard folder: `shards.column("train")` returns the tokens."""

    def __init__(self, folder: Path, header: JsonDict) -> None:
        self.folder, self.header = folder, header
        self.kind: str = header["kind"]
        self.vocab_size: int = header["vocabulary"]
        self.splits = tuple(header["splits"])
        self.labels = tuple(header["labels"])
        self._columns = {(split, name): self._open(split, name) for split in self.splits for name in COLUMNS[self.kind]}

    def column(self, split: str = "train", name: str | None = None) -> TokenColumn:
        """Return a column of a split; the first one if no name is given."""
        key = (split, name or COLUMNS[self.kind][0])
        if key not in self._columns:
            known = ", ".join(f"{split}.{name}" for split, name in self._columns)
            raise InvalidInput(f"{self.folder} has no {'.'.join(key)}.", hint=f"It has {known}.")
        return self._columns[key]

    def num_tokens(self, split: str = "train") -> int:
        """Return the number of tokens of a split, both sides of pairs."""
        names = [name for name in COLUMNS[self.kind] if name not in ("labels", "answers")]
        return sum(len(self.column(split, name)) for name in names)

    def num_documents(self, split: str = "train") -> int:
        """Return the number of documents of a split."""
        return self.column(split).num_documents

    def verify(self) -> None:
        """Check every block now, instead of on first read."""
        for column in self._columns.values():
            column.values.verify()
            if column._ends is not None:
                column._ends.verify()

    def _open(self, split: str, name: str) -> TokenColumn:
        files = self.header["splits"][split]
        values = CheckedArray(self.folder / f"{split}.{name}.bin", files[f"{name}.bin"])
        if name == "labels":
            return TokenColumn(values, None)
        ends = CheckedArray(self.folder / f"{split}.{name}.ends", files[f"{name}.ends"])
        if len(ends) and int(ends.rows(np.array([len(ends) - 1]), 1)[0, 0]) != len(values):
            raise InvalidInput(f"{ends.path}: the last document does not end with the last token.", hint=_REBUILD_HINT)
        return TokenColumn(values, ends)


_REBUILD_HINT = "Delete the folder and prepare the corpus again."


def shards_fingerprint(corpus: Corpus, tokenizer: Tokenizer, target_tokenizer: Tokenizer | None = None) -> str:
    """Return one hash of everything the shards depend on; used as the name of their folder."""
    parts = [_FORMAT, corpus.kind, corpus.cached_survey.hash, _tokenizer_hash(tokenizer)]
    parts += [tokenizer.chat_template or ""] if corpus.kind == "chat" else []
    parts += [] if target_tokenizer is None else [_tokenizer_hash(target_tokenizer)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def prepare_shards(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: str | Path,
    progress: _ProgressCallback | None = None,
    target_tokenizer: Tokenizer | None = None,
) -> TokenShards:
    """Tokenize a corpus into shards, in constant memory; an existing folder is opened as it is.

    `target_tokenizer` is used for the targets of pairs, if given.

    The folder is created atomically: an interrupted run starts again. In plain text each document is followed by the
    tokenizer's eos, if it has one.
    """
    folder = Path(folder)
    fingerprint = shards_fingerprint(corpus, tokenizer, target_tokenizer)
    if not folder.exists():
        try:
            with locked_atomic_dir(folder) as part:
                _write_shards(part, corpus, (tokenizer, target_tokenizer or tokenizer), fingerprint, progress)
        except InvalidInput:
            if not folder.exists():  # otherwise another process has prepared it meanwhile
                raise
    shards = open_shards(folder)
    if shards.header["fingerprint"] != fingerprint:
        hint = "Choose another folder, or delete it."
        raise InvalidInput(f"{folder} contains shards of another corpus or tokenizer.", hint=hint)
    return shards


def open_shards(folder: str | Path) -> TokenShards:
    """Open a shard folder; the header and all sizes are checked now, each block on first read."""
    folder = Path(folder)
    path = folder / _HEADER
    if not path.is_file():
        raise NotFound(f"There are no shards in {folder}: {_HEADER} is missing.", hint="Prepare the corpus first.")
    try:
        header = json.loads(path.read_bytes())
        recorded = header.pop("sha256")
        if recorded == _header_hash(header) and _FORMAT.items() <= header.items():
            return TokenShards(folder, header)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # raised below
    raise InvalidInput(f"{path} is corrupt, or was written by another version of peasy.", hint=_REBUILD_HINT)


def _write_shards(
    folder: Path,
    corpus: Corpus,
    tokenizers: tuple[Tokenizer, Tokenizer],
    fingerprint: str,
    progress: _ProgressCallback | None,
) -> None:
    total, done = sum(size.characters for size in corpus.cached_survey.sizes.values()), 0
    splits: dict[str, dict[str, _ArrayDescription]] = {}
    labels: dict[str, int] = {}
    if progress is not None:
        progress(0, total)
    for split in corpus.splits:
        assert _SPLIT_NAME.fullmatch(split)
        with _SplitWriter(folder, split, corpus.kind, tokenizers, labels) as writer:
            for batch in piece_batches(corpus.pieces(split)):
                done += writer.add(batch)
                if progress is not None:
                    progress(done, total)
        splits[split] = writer.description
    header = {
        **_FORMAT,
        "kind": corpus.kind,
        "corpus": {"name": corpus.name, "hash": corpus.cached_survey.hash},
        "tokenizer": _tokenizer_hash(tokenizers[0]),
        "vocabulary": max(tokenizer.vocab_size for tokenizer in tokenizers),
        "end": tokenizers[0].special_tokens.eos,
        "labels": list(labels),
        "fingerprint": fingerprint,
        "splits": splits,
    }
    header["sha256"] = _header_hash(header)
    (folder / _HEADER).write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")


def piece_batches(pieces: Iterable[tuple[Sample, bool]]) -> Iterator[list[tuple[Sample, bool]]]:
    """Group pieces into batches large enough to tokenize on all cores, small enough for memory."""
    batch: list[tuple[Sample, bool]] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += 64 + sum(map(len, sample_texts(piece[0])))
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _SplitWriter:
    """Writes the columns of one split."""

    def __init__(
        self, folder: Path, split: str, kind: str, tokenizers: tuple[Tokenizer, Tokenizer], labels: dict[str, int]
    ) -> None:
        self._tokenizers, self._labels, self._kind = tokenizers, labels, kind
        vocabulary = max(tokenizer.vocab_size for tokenizer in tokenizers)
        token_dtype = "uint16" if vocabulary <= 1 << 16 else "uint32"
        self._names = [name for name in COLUMNS[kind] if name != "labels"]
        kinds = {f"{name}.bin": token_dtype for name in self._names}
        kinds |= {f"{name}.ends": "int64" for name in self._names}
        kinds |= {"labels.bin": "uint32"} if kind == "labelled" else {}
        self._files = {name: CheckedArrayWriter(folder / f"{split}.{name}", dtype) for name, dtype in kinds.items()}
        self.description: dict[str, _ArrayDescription] = {}

    def __enter__(self) -> "_SplitWriter":
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._finish()
        for file in self._files.values():
            file.close()

    def add(self, batch: Sequence[tuple[Sample, bool]]) -> int:
        """Write some pieces; return their number of characters."""
        if self._kind == "chat":
            conversations = [sample for sample, _ in batch if isinstance(sample, Conversation)]
            messages = [[{"role": role, "content": text} for role, text in chat.messages] for chat in conversations]
            encoded = encode_conversations(self._tokenizers[0], messages)
            for index, name in enumerate(self._names):
                self._add_column(name, [chat[index] for chat in encoded], [True] * len(encoded))
            return sum(len(text) for chat in conversations for text in sample_texts(chat))
        texts = [sample_texts(sample) for sample, _ in batch]
        for index, name in enumerate(self._names):
            ids = self._tokenizers[index].encode_batch_ids([text[index] for text in texts], add_special_tokens=False)
            self._add_column(name, ids, [ends for _, ends in batch])
        if self._kind == "labelled":
            labels = [sample.label for sample, _ in batch if isinstance(sample, LabelledText)]
            self._files["labels.bin"].write([self._labels.setdefault(label, len(self._labels)) for label in labels])
        return sum(len(text) for row in texts for text in row)

    def _add_column(self, name: str, ids: list[list[int]], ends: list[bool]) -> None:
        eos = self._tokenizers[0].special_tokens.eos if self._kind == "text" else None
        suffixes = [[eos] if is_end and eos is not None else [] for is_end in ends]
        file = self._files[f"{name}.bin"]
        lengths = np.array([len(row) + len(suffix) for row, suffix in zip(ids, suffixes, strict=True)], dtype=np.int64)
        document_ends = file.num_items + np.cumsum(lengths)
        file.write(list(chain.from_iterable(chain.from_iterable(zip(ids, suffixes, strict=True)))))
        self._files[f"{name}.ends"].write(document_ends[np.array(ends, dtype=bool)])

    def _finish(self) -> None:
        for name in self._names:
            ends, file = self._files[f"{name}.ends"], self._files[f"{name}.bin"]
            if file.num_items and ends.last != file.num_items:
                ends.write([file.num_items])  # a text cut by the split boundary ends here
        self.description = {name: file.finish() for name, file in self._files.items()}


def _tokenizer_hash(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.to_json().encode()).hexdigest()


def _header_hash(header: JsonDict) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


@contextmanager
def locked_atomic_dir(target: Path) -> Iterator[Path]:
    """Atomic write of a shard folder that also deletes what a killed writer left: shards may take gigabytes."""
    for old in target.parent.glob(f".{glob.escape(target.name)}.part-*"):
        if (old / _LOCK_FILE).is_file():  # otherwise it is just being created, or about to be renamed
            with suppress(Timeout, OSError), FileLock(old / _LOCK_FILE, blocking=False):
                shutil.rmtree(old, ignore_errors=True)
    with atomic_dir(target) as part:
        with FileLock(part / _LOCK_FILE, blocking=False):
            yield part
        (part / _LOCK_FILE).unlink(missing_ok=True)
