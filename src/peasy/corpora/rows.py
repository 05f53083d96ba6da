"""Records from JSONL, TSV and Parquet files: texts, text pairs or labelled texts; bad records are reported."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from peasy.corpora.corpus import Corpus, Problems, Size, Survey, digest_of
from peasy.corpora.encoding import read_lines
from peasy.corpora.running import TRAINED_ON
from peasy.corpora.sample import Labelled, Pair, Sample
from peasy.errors import InvalidInput
from peasy.parts import need

Group = tuple[Path, ...]
"""One file, or two aligned ones."""

_BATCH = 1024


@dataclass(frozen=True)
class Keys:
    """Field names of a record."""

    text: str = "text"
    source: str = "source"
    target: str = "target"
    label: str = "label"


class Rows(Corpus):
    """Corpus of record files. With training files only, the last tenth of the records is the validation split."""

    says = "your records"
    licence = "yours"

    def __init__(
        self, name: str, files: Mapping[str, Sequence[Group]], *, keys: Keys | None = None, strict: bool = False
    ) -> None:
        super().__init__()
        self.name = name
        self.problems = Problems(strict=strict)
        self._keys = keys or Keys()
        self._files = {split: tuple(groups) for split, groups in files.items()}
        self._cut = "valid" not in self._files
        self.splits = tuple(split for split in ("train", "valid", "test") if split in self._files or split == "valid")
        first = next((sample for split in self._files for sample in self._all(split, Problems())), None)
        self.kind = "pairs" if isinstance(first, Pair) else "labelled" if isinstance(first, Labelled) else "text"

    def survey(self) -> Survey:
        """Count, hash and check every record; problems are collected here, once."""
        results = {split: digest_of(self._all(split, self.problems)) for split in self._files}
        sizes = {split: size for split, (size, _) in results.items()}
        self._check(sizes)
        if self._cut:
            num_train = int(sizes["train"].documents * TRAINED_ON)
            num_train = min(max(num_train, 1), sizes["train"].documents - 1)
            train, _ = digest_of(islice(self._all("train", Problems()), num_train))
            valid = Size(
                num_train and sizes["train"].documents - num_train, sizes["train"].characters - train.characters
            )
            sizes |= {"train": train, "valid": valid}
        digests = "".join(f"{split}{digest}" for split, (_, digest) in sorted(results.items()))
        return Survey(digest_of(iter([digests]))[1], {split: sizes[split] for split in self.splits})

    def read(self, split: str) -> Iterator[Sample]:
        """Yield the records of a split, in the order of the files."""
        sizes = self.surveyed.sizes
        if not self._cut or split == "test":
            return self._all(split, Problems())
        start = 0 if split == "train" else sizes["train"].documents
        return islice(self._all("train", Problems()), start, start + sizes[split].documents)

    def notes(self) -> Mapping[str, str]:
        """Return how the records were split."""
        groups = sum(map(len, self._files.values()))
        return {
            "files": str(groups),
            "split": "the last tenth of the rows is the validation split" if self._cut else "by file",
        }

    def _all(self, split: str, problems: Problems) -> Iterator[Sample]:
        kind: type | None = None
        for group in self._files[split]:
            for where, sample in reader_of(group, self._keys)(problems):
                kind = kind or type(sample)
                if type(sample) is kind:
                    yield sample
                else:
                    problems.add(where, f"the row is {_NAMES[type(sample)]}, the first was {_NAMES[kind]}")

    def _check(self, sizes: Mapping[str, Size]) -> None:
        count = sizes["train"].documents
        problems = self.problems
        if problems.count > max(count, 1):
            where, reason = problems.named[0]
            raise InvalidInput(
                f"{problems.count:,} of {problems.count + count:,} rows of {self.name} are unusable; "
                f"first {where}: {reason}.",
                hint="A row is a JSON object with text (and label) or source and target, or two columns of a .tsv.",
            )
        required = 2 if self._cut else 1
        if count < required:
            shortage = "has no rows" if not count else "has only one row, and validation needs one"
            details = (
                f" ({problems.count:,} are unusable; first {problems.named[0][0]}: {problems.named[0][1]})"
                if problems
                else ""
            )
            raise InvalidInput(f"{self.name} {shortage}{details}.", hint="Add more rows.")


_NAMES: dict[type, str] = {str: "a text", Pair: "a pair", Labelled: "a labelled text"}
Reader = Callable[[Problems], Iterator[tuple[str, Sample]]]


def reader_of(group: Group, keys: Keys) -> Reader:
    """Return the reader of a record file."""
    if len(group) == 2:
        return partial(_read_aligned, *group)
    readers = {".jsonl": _read_jsonl, ".ndjson": _read_jsonl, ".tsv": _read_tsv, ".parquet": _read_parquet}
    read = readers.get(group[0].suffix.lower(), _read_plain)
    return partial(read, group[0], keys)


def _read_plain(path: Path, keys: Keys, problems: Problems) -> Iterator[tuple[str, Sample]]:
    for number, line in read_lines(path, problems):
        if line and line.strip():
            yield f"{path}:{number}", line


def _read_jsonl(path: Path, keys: Keys, problems: Problems) -> Iterator[tuple[str, Sample]]:
    for number, line in read_lines(path, problems):
        if line is None or not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except RecursionError:
            problems.add(where, "the row is nested too deeply")
            continue
        except ValueError as error:
            problems.add(where, f"the row is not JSON ({str(error).partition(':')[0]})")
            continue
        if (sample := _sample(row, keys, where, problems)) is not None:
            yield where, sample


def _read_parquet(path: Path, keys: Keys, problems: Problems) -> Iterator[tuple[str, Sample]]:
    parquet = need("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path)
        columns = [name for name in vars(keys).values() if name in file.schema_arrow.names]
        number = 0
        for batch in file.iter_batches(batch_size=_BATCH, columns=columns):
            for row in batch.to_pylist():
                number += 1
                if (sample := _sample(row, keys, f"{path}:{number}", problems)) is not None:
                    yield f"{path}:{number}", sample
    except (OSError, ValueError) as error:  # pyarrow's errors derive from these
        raise InvalidInput(f"{path} cannot be read as parquet: {error}.") from None


def _sample(row: Any, keys: Keys, where: str, problems: Problems) -> Sample | None:
    """Return the sample of a record, or None after reporting a problem."""
    if not isinstance(row, dict):
        problems.add(where, "the row is not an object with named fields")
        return None
    if keys.source in row or keys.target in row:
        fields: tuple[str, ...] = (keys.source, keys.target)
    elif row.get(keys.label) is not None:
        fields = (keys.text, keys.label)
    else:
        fields = (keys.text,)
    for key in fields:
        value = row.get(key)
        if key == keys.label and isinstance(value, int):
            row[key] = str(value)
        elif reason := _wrong(value):
            problems.add(where, f'"{key}" {reason}')
            return None
    if len(fields) == 1:
        return row[keys.text]
    first, second = (row[key] for key in fields)
    return Pair(first, second) if fields[0] == keys.source else Labelled(first, second)


def _wrong(value: Any) -> str | None:
    if value is None:
        return "is missing"
    if not isinstance(value, str):
        return "is not text"
    if not value.strip():
        return "is empty"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return "contains an unpaired surrogate"
    return None


def _read_tsv(path: Path, keys: Keys, problems: Problems) -> Iterator[tuple[str, Sample]]:
    """Read two columns: source and target; or text and label, if a header line names them."""
    make_sample: Callable[[str, str], Sample] = Pair
    for number, line in read_lines(path, problems):
        if line is None or not line.strip():
            continue
        cells = line.split("\t")
        if number == 1 and cells in ([keys.text, keys.label], [keys.source, keys.target]):
            make_sample = Labelled if cells[0] == keys.text else Pair
        elif len(cells) != 2:
            problems.add(
                f"{path}:{number}", f"the row has {len(cells)} {'column' if len(cells) == 1 else 'columns'}, not 2"
            )
        elif not (cells[0].strip() and cells[1].strip()):
            problems.add(f"{path}:{number}", f"column {1 if not cells[0].strip() else 2} is empty")
        else:
            yield f"{path}:{number}", make_sample(cells[0], cells[1])


def _read_aligned(source: Path, target: Path, problems: Problems) -> Iterator[tuple[str, Sample]]:
    """Read two line-aligned files: line n of one is the translation of line n of the other."""
    line_pairs = zip_longest(read_lines(source, problems), read_lines(target, problems))
    for number, (left, right) in enumerate(line_pairs, 1):
        if left is None or right is None:
            short, long = (source, target) if left is None else (target, source)
            raise InvalidInput(
                f"{short} ends after {number - 1:,} lines, {long} does not: aligned files must match line by line.",
                hint="Both files need the same number of lines.",
            )
        first, second = left[1], right[1]
        if first is None or second is None or not (first.strip() or second.strip()):
            continue
        if not (first.strip() and second.strip()):
            problems.add(f"{source if not first.strip() else target}:{number}", "the line is empty, its partner is not")
        else:
            yield f"{source}:{number}", Pair(first, second)
