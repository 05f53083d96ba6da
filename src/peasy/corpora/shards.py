"""Token shards: a corpus as numbers on disk, written once in constant memory, read through memory maps.

A folder holds `shards.json` and, for each split and column, the numbers (`train.tokens.bin`) and where each document
ends (`train.tokens.ends`). The columns are `tokens` for text, `source` and `target` for pairs, `tokens` and `labels`
for labelled text. Every block of every file has its SHA-256 in the header and is checked when it is first read.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peasy.corpora.block import BlockFile, BlockWriter
from peasy.corpora.corpus import Corpus
from peasy.corpora.place import committed
from peasy.corpora.sample import Labelled, Pair, Sample
from peasy.errors import InvalidInput, NotFound
from peasy.text import Tokenizer

HEADER = "shards.json"
FORMAT = {"format": "peasy-shards", "version": 1}
COLUMNS = {"text": ("tokens",), "pairs": ("source", "target"), "labelled": ("tokens", "labels")}
Progress = Callable[[int, int], None]
"""Called with how many characters are done, and how many there are."""

_AT_ONCE = 1 << 19
_SPLIT = re.compile(r"[a-z]{1,20}")


class Column:
    """The numbers of one column of one split, whole documents one after the other."""

    def __init__(self, values: BlockFile, ends: BlockFile | None) -> None:
        self.values = values
        self._ends = ends

    def __len__(self) -> int:
        """How many numbers there are."""
        return len(self.values)

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self.values if self._ends is None else self._ends)

    def windows(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """`length` numbers from each start, as rows."""
        return self.values.rows(starts, length)

    def bounds(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where documents start and end, by their numbers."""
        if self._ends is None:
            return numbers, numbers + 1
        ends = self._ends.at(numbers)
        starts = np.where(numbers > 0, self._ends.at(np.maximum(numbers - 1, 0)), 0)
        return starts, ends

    def lengths(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """How long documents are, by their numbers."""
        starts, ends = self.bounds(numbers)
        return ends - starts

    def document(self, number: int) -> NDArray[np.int64]:
        """One document."""
        (start,), (end,) = self.bounds(np.array([number], dtype=np.int64))
        return self.values.rows(np.array([start], dtype=np.int64), int(end - start))[0]


class Shards:
    """An opened folder of shards: `shards.column("train")` gives the numbers."""

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        self.folder, self.header = folder, header
        self.kind: str = header["kind"]
        self.vocabulary: int = header["vocabulary"]
        self.splits = tuple(header["splits"])
        self.labels = tuple(header["labels"])
        self._columns = {(split, name): self._open(split, name) for split in self.splits for name in COLUMNS[self.kind]}

    def column(self, split: str = "train", name: str | None = None) -> Column:
        """A column of a split; the first one where no name is given."""
        key = (split, name or COLUMNS[self.kind][0])
        if key not in self._columns:
            known = ", ".join(f"{split}.{name}" for split, name in self._columns)
            raise InvalidInput(f"{self.folder} has no {'.'.join(key)}.", hint=f"It has {known}.")
        return self._columns[key]

    def tokens(self, split: str = "train") -> int:
        """How many tokens a split has, of pairs both sides."""
        names = [name for name in COLUMNS[self.kind] if name != "labels"]
        return sum(len(self.column(split, name)) for name in names)

    def documents(self, split: str = "train") -> int:
        """How many documents a split has."""
        return self.column(split).documents

    def verify(self) -> None:
        """Check every block now, instead of when it is first read."""
        for column in self._columns.values():
            column.values.verify()
            if column._ends is not None:
                column._ends.verify()

    def _open(self, split: str, name: str) -> Column:
        files = self.header["splits"][split]
        values = BlockFile(self.folder / f"{split}.{name}.bin", files[f"{name}.bin"])
        if name == "labels":
            return Column(values, None)
        ends = BlockFile(self.folder / f"{split}.{name}.ends", files[f"{name}.ends"])
        if len(ends) and int(ends.at(np.array([len(ends) - 1]))[0]) != len(values):
            raise InvalidInput(f"{ends.path}: the last document does not end where the tokens do.", hint=_AGAIN)
        return Column(values, ends)


_AGAIN = "Delete the folder and prepare the corpus again."


def fingerprint(corpus: Corpus, tokenizer: Tokenizer, answers: Tokenizer | None = None) -> str:
    """What the shards of a corpus depend on, as one hash: a good name for their folder."""
    parts = [FORMAT, corpus.kind, corpus.surveyed.hash, _tokenizer_hash(tokenizer)]
    parts += [] if answers is None else [_tokenizer_hash(answers)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: str | Path,
    progress: Progress | None = None,
    answers: Tokenizer | None = None,
) -> Shards:
    """Write a corpus as token shards, in constant memory; a folder that already holds them is opened as it is.

    `answers` cuts the targets of pairs, where that is another tokenizer.

    The folder appears when all of it is safe on the disk, and not before: a run that was cut off starts again.
    After each document of a text stands the tokenizer's end token, where it has one.
    """
    folder = Path(folder)
    wanted = fingerprint(corpus, tokenizer, answers)
    if folder.exists():
        return _reopen(folder, wanted)
    with committed(folder) as part:
        _write(part, corpus, (tokenizer, answers or tokenizer), wanted, progress or (lambda done, total: None))
    return open_shards(folder)


def open_shards(folder: str | Path) -> Shards:
    """Open what `prepare` wrote; the header and all sizes are checked now, each block when it is first read."""
    folder = Path(folder)
    path = folder / HEADER
    if not path.is_file():
        raise NotFound(f"There are no shards in {folder}.", hint=f"{HEADER} is missing.")
    try:
        header = json.loads(path.read_bytes())
        told = header.pop("sha256")
        if told == _header_hash(header) and FORMAT.items() <= header.items():
            return Shards(folder, header)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # said below
    raise InvalidInput(f"{path} is damaged, or not of this version of peasy.", hint=_AGAIN)


def _reopen(folder: Path, wanted: str) -> Shards:
    shards = open_shards(folder)
    if shards.header["fingerprint"] != wanted:
        raise InvalidInput(
            f"{folder} holds shards of another corpus or tokenizer.", hint="Choose another folder, or delete it."
        )
    return shards


def _write(
    folder: Path, corpus: Corpus, tokenizers: tuple[Tokenizer, Tokenizer], wanted: str, progress: Progress
) -> None:
    total, done = sum(size.characters for size in corpus.surveyed.sizes.values()), 0
    splits: dict[str, dict[str, Any]] = {}
    labels: dict[str, int] = {}
    for split in corpus.splits:
        assert _SPLIT.fullmatch(split)
        with _SplitWriter(folder, split, corpus.kind, tokenizers, labels) as writer:
            for batch in _batches(corpus.pieces(split)):
                done += writer.add(batch)
                progress(done, total)
        splits[split] = writer.described
    header = {
        **FORMAT,
        "kind": corpus.kind,
        "corpus": {"name": corpus.name, "hash": corpus.surveyed.hash},
        "tokenizer": _tokenizer_hash(tokenizers[0]),
        "vocabulary": max(each.vocabulary for each in tokenizers),
        "end": tokenizers[0].special.eos,
        "labels": list(labels),
        "fingerprint": wanted,
        "splits": splits,
    }
    header["sha256"] = _header_hash(header)
    (folder / HEADER).write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")


def _batches(pieces: Iterator[tuple[Sample, bool]]) -> Iterator[list[tuple[Sample, bool]]]:
    """Enough at once to keep every core busy, and never more than fits into a little memory."""
    batch: list[tuple[Sample, bool]] = []
    waiting = 0
    for piece in pieces:
        batch.append(piece)
        waiting += 64 + sum(len(text) for text in _columns_of(piece[0]))
        if waiting >= _AT_ONCE:
            yield batch
            batch, waiting = [], 0
    if batch:
        yield batch


def _columns_of(sample: Sample) -> tuple[str, ...]:
    if isinstance(sample, Pair):
        return sample.source, sample.target
    return (sample.text,) if isinstance(sample, Labelled) else (sample,)


class _SplitWriter:
    """Writes the columns of one split side by side."""

    def __init__(
        self, folder: Path, split: str, kind: str, tokenizers: tuple[Tokenizer, Tokenizer], labels: dict[str, int]
    ) -> None:
        self._tokenizers, self._labels, self._kind = tokenizers, labels, kind
        vocabulary = max(each.vocabulary for each in tokenizers)
        width = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
        self._names = [name for name in COLUMNS[kind] if name != "labels"]
        kinds = {f"{name}.bin": width for name in self._names} | {f"{n}.ends": np.dtype(np.int64) for n in self._names}
        if kind == "labelled":
            kinds["labels.bin"] = np.dtype(np.uint32)
        self._files = {name: BlockWriter(folder / f"{split}.{name}", dtype) for name, dtype in kinds.items()}
        self.described: dict[str, Any] = {}

    def __enter__(self) -> "_SplitWriter":
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._finish()
        for file in self._files.values():
            file.close()

    def add(self, batch: Sequence[tuple[Sample, bool]]) -> int:
        """Write some pieces; tells how many characters they had."""
        texts = [_columns_of(sample) for sample, _ in batch]
        for place, name in enumerate(self._names):
            ids = self._tokenizers[place].ids([text[place] for text in texts], special=False)
            self._add_column(name, ids, [ends for _, ends in batch])
        if self._kind == "labelled":
            numbers = [self._labels.setdefault(s.label, len(self._labels)) for s, _ in batch if isinstance(s, Labelled)]
            self._files["labels.bin"].write(numbers)
        return sum(len(text) for row in texts for text in row)

    def _add_column(self, name: str, ids: list[list[int]], ends: list[bool]) -> None:
        end = self._tokenizers[0].special.eos if self._kind == "text" else None
        closing = [[end] if ended and end is not None else [] for ended in ends]
        file = self._files[f"{name}.bin"]
        lengths = np.array([len(row) + len(close) for row, close in zip(ids, closing, strict=True)], dtype=np.int64)
        places = file.items + np.cumsum(lengths)
        file.write(list(chain.from_iterable(chain.from_iterable(zip(ids, closing, strict=True)))))
        self._files[f"{name}.ends"].write(places[np.array(ends, dtype=bool)])

    def _finish(self) -> None:
        for name in self._names:
            ends, file = self._files[f"{name}.ends"], self._files[f"{name}.bin"]
            if file.items and ends.last != file.items:
                ends.write([file.items])  # a text that was cut by the split ends with it
        self.described = {name: file.finish() for name, file in self._files.items()}


def _tokenizer_hash(tokenizer: Tokenizer) -> str:
    with TemporaryDirectory() as folder:
        tokenizer.save(f"{folder}/tokenizer.json")
        return hashlib.sha256((Path(folder) / "tokenizer.json").read_bytes()).hexdigest()


def _header_hash(header: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
