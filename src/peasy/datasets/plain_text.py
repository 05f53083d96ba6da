"""Plain-text corpus: the user's text files, streamed in pieces."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path

from peasy.datasets.charset import read_blocks
from peasy.datasets.corpus import CorpusSurvey, FilesCorpus, Sample, SplitSize
from peasy.errors import InvalidInput

TRAIN_FRACTION = 0.9
"""Fraction of the user's data used for training if no validation files are given."""

_MAX_PIECE = 1 << 22
_MIN_CHARACTERS = 20
_SMALL_CORPUS = 100_000


class PlainTextCorpus(FilesCorpus):
    """Text files, each one document."""

    description = "your text"
    unit = "characters"

    def __init__(self, name: str, files: Mapping[str, Sequence[Path]]) -> None:
        super().__init__(name, {split: len(group) for split, group in files.items()})
        self._files = {split: tuple(paths) for split, paths in files.items()}

    def survey(self) -> CorpusSurvey:
        """Hash and count the files; all are decoded once, so that invalid bytes are found now."""
        digest, lengths = hashlib.sha256(), dict[str, list[int]]()
        for split, paths in self._files.items():
            for path in paths:
                file_digest = hashlib.sha256()
                lengths.setdefault(split, []).append(sum(map(len, read_blocks(path, file_digest.update))))
                digest.update(file_digest.digest())
        for split, counts in lengths.items():
            if sum(counts) < _MIN_CHARACTERS:
                problem = f"has only {sum(counts)} characters" if sum(counts) else "is empty"
                name = self.name if split == "train" else f"{self.name} ({split})"
                hint = f"At least {_MIN_CHARACTERS} are needed; 100,000 or more are better."
                raise InvalidInput(f"{name} {problem}.", hint=hint)
        sizes = {split: SplitSize(len(counts), sum(counts)) for split, counts in lengths.items()}
        if self.split_by_count:
            total = sizes["train"].characters
            num_train = int(total * TRAIN_FRACTION)
            train_documents = bisect_left(list(accumulate(lengths["train"])), num_train) + 1
            sizes |= {
                "train": SplitSize(train_documents, num_train),
                "valid": SplitSize(len(lengths["train"]) - train_documents + 1, total - num_train),
            }
        return CorpusSurvey(digest.hexdigest(), {split: sizes[split] for split in self.splits})

    def read(self, split: str) -> Iterator[Sample]:
        """Yield the text of a split in pieces."""
        return (piece for piece, _ in self.pieces(split))

    def pieces(self, split: str = "train") -> Iterator[tuple[Sample, bool]]:
        """Yield pieces of up to a few million characters, split at line ends, and whether a file ends there.

        The last file of a split is not marked as ending, since no document follows it.
        """
        self._check_split(split)
        size = self.cached_survey.sizes
        if not self.split_by_count or split == "test":
            yield from _pieces(self._files[split], 0, size[split].characters)
            return
        start = 0 if split == "train" else size["train"].characters
        yield from _pieces(self._files["train"], start, start + size[split].characters)

    def examples(self) -> Iterable[Sample]:
        """Return the first lines."""
        first = next(iter(self.read("train")))
        assert isinstance(first, str)
        return islice(filter(str.strip, first.splitlines()), 5)

    def notes(self) -> dict[str, str]:
        """Return how the text was split, and a note if there is little of it."""
        notes, total = super().notes(), sum(size.characters for size in self.cached_survey.sizes.values())
        if total < _SMALL_CORPUS:
            notes["size note"] = f"{total:,} characters are enough for a test run, not for learning a language"
        return notes


def _pieces(paths: Sequence[Path], start: int, stop: int) -> Iterator[tuple[str, bool]]:
    """Yield the characters from `start` to `stop` of all files concatenated."""
    done = 0
    for path in paths:
        pending = ""
        for piece in _split_at_lines(read_blocks(path)):
            wanted = piece[max(0, start - done) : max(0, stop - done)]
            done += len(piece)
            if pending:
                yield pending, False
            pending = wanted
            if done >= stop:
                break
        if pending or start < done < stop:
            yield pending, done < stop
        if done >= stop:
            return


def _split_at_lines(blocks: Iterator[str]) -> Iterator[str]:
    """Split text where a line ends and the next begins with a word, so that no token is split."""
    rest = ""
    for block in blocks:
        if cut := _split_position(rest):
            yield rest[:cut]
        rest = rest[cut:] + block
    if rest:
        yield rest


def _split_position(text: str) -> int:
    newline = text.rfind("\n", 0, len(text) - 1)
    while newline >= 0 and text[newline + 1].isspace():
        newline = text.rfind("\n", 0, newline)
    if newline < 0 and len(text) > _MAX_PIECE:
        newline = text.rfind(" ", 0, len(text) - 1) - 1  # a space belongs to the following word
        return newline + 1 if newline >= 0 else len(text)
    return newline + 1
