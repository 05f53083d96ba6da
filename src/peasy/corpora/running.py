"""Running text from the user's files: read as one text, by parts, whatever its size."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from peasy.corpora.corpus import Corpus, Size, Survey
from peasy.corpora.encoding import read_blocks
from peasy.corpora.sample import Sample
from peasy.errors import InvalidInput

TRAINED_ON = 0.9
"""The share of the user's data that is learned from, where no files say otherwise; the last tenth is held out."""

_LONGEST = 1 << 22
_LEAST = 20
_SMALL = 100_000


class RunningText(Corpus):
    """Text files, each one document. With only training files, the last tenth of all characters is held out."""

    kind = "text"
    says = "your text"
    licence = "yours"

    def __init__(self, name: str, files: Mapping[str, Sequence[Path]]) -> None:
        super().__init__()
        self.name = name
        self._files = {split: tuple(paths) for split, paths in files.items()}
        self._cut = "valid" not in self._files
        self.splits = tuple(split for split in ("train", "valid", "test") if split in self._files or split == "valid")

    def survey(self) -> Survey:
        """Hash and count the files; all of them are decoded once, so that no bad byte comes as a surprise later."""
        digest = hashlib.sha256()
        lengths = {split: [_measure(path, digest) for path in paths] for split, paths in self._files.items()}
        for split, counts in lengths.items():
            self._check(split, sum(counts))
        sizes = {split: Size(len(counts), sum(counts)) for split, counts in lengths.items()}
        if self._cut:
            whole = sizes["train"].characters
            kept = int(whole * TRAINED_ON)
            inside = _documents_within(lengths["train"], kept)
            sizes |= {
                "train": Size(inside, kept),
                "valid": Size(len(lengths["train"]) - inside + 1, whole - kept),
            }
        return Survey(digest.hexdigest(), {split: sizes[split] for split in self.splits})

    def read(self, split: str) -> Iterator[Sample]:
        """The text of a split in parts."""
        return (piece for piece, _ in self.pieces(split))

    def pieces(self, split: str = "train") -> Iterator[tuple[Sample, bool]]:
        """Parts of up to a few million characters, cut at line ends, and whether a file ends there.

        The last file of a split is not said to end: after it nothing follows that it must be told apart from.
        """
        self._known(split)
        size = self.surveyed.sizes
        if not self._cut or split == "test":
            yield from _pieces(self._files[split], 0, size[split].characters)
            return
        start = 0 if split == "train" else size["train"].characters
        yield from _pieces(self._files["train"], start, start + size[split].characters)

    def examples(self) -> Iterable[Sample]:
        """The first lines."""
        first = next(iter(self.read("train")))
        assert isinstance(first, str)
        return islice(filter(str.strip, first.splitlines()), 5)

    def notes(self) -> Mapping[str, str]:
        """How the text was split, and whether there is little of it."""
        told = {"files": str(sum(map(len, self._files.values())))}
        told["split"] = "the last tenth of the characters is held out" if self._cut else "by file"
        whole = sum(size.characters for size in self.surveyed.sizes.values())
        if whole < _SMALL:
            told["small"] = f"{whole:,} characters are enough to try things, not to learn a language from"
        return told

    def _check(self, split: str, characters: int) -> None:
        if characters < _LEAST:
            what = "is empty" if not characters else f"has only {characters} characters"
            where = self.name if split == "train" else f"{self.name} ({split})"
            raise InvalidInput(f"{where} {what}.", hint=f"At least {_LEAST} are needed, and 100,000 are better.")


def _measure(path: Path, digest: "hashlib._Hash") -> int:
    own = hashlib.sha256()
    count = sum(map(len, read_blocks(path, own.update)))
    digest.update(own.digest())
    return count


def _documents_within(lengths: Sequence[int], kept: int) -> int:
    """In how many documents the first `kept` characters lie."""
    count = 0
    for length in lengths:
        if kept <= 0:
            break
        count, kept = count + 1, kept - length
    return max(count, 1)


def _pieces(paths: Sequence[Path], start: int, stop: int) -> Iterator[tuple[str, bool]]:
    """The characters from `start` to `stop` of all files together."""
    done = 0
    for path in paths:
        last = ""
        for piece in _by_lines(read_blocks(path)):
            wanted = piece[max(0, start - done) : max(0, stop - done)]
            done += len(piece)
            if last:
                yield last, False
            last = wanted
            if done >= stop:
                break
        if last or start < done < stop:
            yield last, done < stop
        if done >= stop:
            return


def _by_lines(blocks: Iterator[str]) -> Iterator[str]:
    """The same text, cut where a line ends and the next begins with a word: tokens are never cut there."""
    rest = ""
    for block in blocks:
        if cut := _cut(rest):
            yield rest[:cut]
        rest = rest[cut:] + block
    if rest:
        yield rest


def _cut(text: str) -> int:
    at = text.rfind("\n", 0, len(text) - 1)
    while at >= 0 and text[at + 1].isspace():
        at = text.rfind("\n", 0, at)
    if at < 0 and len(text) > _LONGEST:
        at = text.rfind(" ", 0, len(text) - 1) - 1  # a space belongs to the word after it
        return at + 1 if at >= 0 else len(text)
    return at + 1
