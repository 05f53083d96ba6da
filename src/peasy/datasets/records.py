"""Records as a corpus: JSONL, CSV, TSV, Parquet, two line-aligned files, or texts; reports bad records."""

import csv
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path

from peasy.datasets.charset import MAX_LINE_BYTES, data_suffix, read_blocks, read_lines
from peasy.datasets.corpus import (
    Conversation,
    CorpusSurvey,
    DataProblems,
    FilesCorpus,
    LabelledText,
    Sample,
    SplitSize,
    TextPair,
    count_and_hash,
)
from peasy.datasets.plain_text import TRAIN_FRACTION
from peasy.errors import InvalidInput
from peasy.extras import require_extra
from peasy.parameters import FrozenSettings

Group = tuple[Path, ...]
"""One file, or two aligned ones."""

_PARQUET_BATCH = 1024
MAX_COLUMN_BYTES = 1 << 30
"""Largest column of a row group of a Parquet file; compressed, it may be a few kilobytes."""
MAX_DOCUMENT_CHARACTERS = 1 << 28
"""Longest plain-text file beside record files, which is one text in memory; a small .gz may contain gigabytes."""


class FilesConfig(FrozenSettings):
    """Options for reading the user's files."""

    valid: str | list[str] | None = None
    """Validation file or files; null: files named valid, else the last tenth of the data."""
    test: str | list[str] | None = None
    """Test file or files; null: files named test, if any."""
    lines: bool = False
    """Whether each line of a text file is a document."""
    pairs: bool = False
    """Whether two text files are the two sides of pairs, aligned line by line."""
    strict: bool = False
    """Whether the first unusable record is an error; otherwise they are counted and skipped."""
    suffix: str | None = None
    """Suffix of the files to use in a folder, such as txt; null: all of one format."""
    text: str = "text"
    """Field of a record that holds the text."""
    source: str = "source"
    """Field of a record that holds the source of a pair."""
    target: str = "target"
    """Field of a record that holds the target of a pair."""
    label: str = "label"
    """Field of a record that holds the label."""
    messages: str = "messages"
    """Field of a record that holds the messages of a conversation, each with role and content."""


class RecordCorpus(FilesCorpus):
    """Corpus of record files."""

    description = "your records"
    unit = "rows"

    def __init__(self, name: str, files: Mapping[str, Sequence[Group]], options: FilesConfig) -> None:
        super().__init__(name, {split: len(group) for split, group in files.items()})
        self.problems, self._options = DataProblems(strict=options.strict), options
        self._files = {split: tuple(groups) for split, groups in files.items()}
        first = next((sample for split in self._files for sample in self._read_all(split, DataProblems())), None)
        self.kind = {TextPair: "pairs", LabelledText: "labelled", Conversation: "chat"}.get(type(first), "text")

    def survey(self) -> CorpusSurvey:
        """Count, hash and check every record; problems are collected here, once."""
        results = {split: count_and_hash(self._read_all(split, self.problems)) for split in self._files}
        sizes = {split: size for split, (size, _) in results.items()}
        self._check(sizes)
        if self.split_by_count:
            num_train = int(sizes["train"].documents * TRAIN_FRACTION)
            num_train = min(max(num_train, 1), sizes["train"].documents - 1)
            train, _ = count_and_hash(islice(self._read_all("train", DataProblems()), num_train))
            num_valid = num_train and sizes["train"].documents - num_train
            valid = SplitSize(num_valid, sizes["train"].characters - train.characters)
            sizes |= {"train": train, "valid": valid}
        digests = "".join(f"{split}{digest}" for split, (_, digest) in sorted(results.items()))
        return CorpusSurvey(count_and_hash(iter([digests]))[1], {split: sizes[split] for split in self.splits})

    def read(self, split: str) -> Iterator[Sample]:
        """Yield the records of a split, in the order of the files."""
        sizes = self.cached_survey.sizes
        if not self.split_by_count or split == "test":
            return self._read_all(split, DataProblems())
        start = 0 if split == "train" else sizes["train"].documents
        return islice(self._read_all("train", DataProblems()), start, start + sizes[split].documents)

    def _read_all(self, split: str, problems: DataProblems) -> Iterator[Sample]:
        kind: type | None = None
        for group in self._files[split]:
            for where, sample in _read_group(group, self._options, problems, len(self._files[split]) == 1):
                kind = kind or type(sample)
                if type(sample) is kind:
                    yield sample
                else:
                    problems.add(where, f"the row is {_TYPE_NAMES[type(sample)]}, the first was {_TYPE_NAMES[kind]}")

    def _check(self, sizes: Mapping[str, SplitSize]) -> None:
        count = sizes["train"].documents
        problems = self.problems
        first = "first {}: {}".format(*problems.listed[0]) if problems else ""
        if problems.count > max(count, 1):
            total = f"{problems.count:,} of {problems.count + count:,} rows"
            hint = "A row has text (and label), source and target, or messages as JSON; or two columns of a .tsv."
            hint += " Another name of the text: --set data_options.text=NAME"
            raise InvalidInput(f"{total} of {self.name} are unusable; {first}.", hint=hint)
        if count < (2 if self.split_by_count else 1):
            shortage = "has no rows" if not count else "has only one row, and validation needs one"
            details = f" ({problems.count:,} are unusable; {first})" if problems else ""
            raise InvalidInput(f"{self.name} {shortage}{details}.", hint="Add more rows.")


_TYPE_NAMES: dict[type, str] = {str: "a text", TextPair: "a pair", LabelledText: "a labelled text"}
_TYPE_NAMES |= {Conversation: "a conversation"}


def _read_group(
    group: Group, options: FilesConfig, problems: DataProblems, is_alone: bool
) -> Iterator[tuple[str, Sample]]:
    """Yield the records of a file, or of two aligned ones, each with its place."""
    if len(group) == 2:
        return _read_aligned(*group, problems)
    readers = {".jsonl": _read_jsonl, ".ndjson": _read_jsonl, ".tsv": _read_tsv, ".parquet": _read_parquet}
    readers |= {".csv": partial(_read_csv, is_alone=is_alone)}
    plain = _read_plain if options.lines else _read_document
    return readers.get(data_suffix(group[0]), plain)(group[0], options, problems)


def _read_document(path: Path, options: FilesConfig, problems: DataProblems) -> Iterator[tuple[str, Sample]]:
    """Read a plain-text file beside record files: it is one text."""
    blocks, size = list[str](), 0
    for block in read_blocks(path):
        size += len(block)
        if size > MAX_DOCUMENT_CHARACTERS:
            hint = "Give it alone: a single text is read in blocks."
            raise InvalidInput(f"{path} has more than {MAX_DOCUMENT_CHARACTERS:,} characters.", hint=hint)
        blocks.append(block)
    if (text := "".join(blocks)).strip():
        yield str(path), text


def _read_csv(path: Path, options: FilesConfig, problems: DataProblems, is_alone: bool) -> Iterator[tuple[str, Sample]]:
    """Read rows, whose header line names the columns; a quoted text may contain line breaks.

    Columns are separated by commas, or, if the header then has no known name, by semicolons or tabs. A file without
    a known column is an error if it `is_alone`, else a problem.
    """
    lines = (line + "\n" for _, line in read_lines(path, problems) if line is not None)
    header, known = next(lines, ""), {options.text, options.source, options.target}
    delimiter = next((mark for mark in ",;\t" if known & {name.strip('" \n') for name in header.split(mark)}), ",")
    rows = csv.DictReader(chain([header], lines), delimiter=delimiter)
    try:
        with _field_limit():
            rows.fieldnames  # noqa: B018 - reads the header
        if not known & set(rows.fieldnames or ()):
            found = ", ".join(rows.fieldnames or ())[:200] or "nothing"
            if not is_alone:
                problems.add(str(path), f"the header names {found}, not {options.text}")
                return
            name = (rows.fieldnames or ["body"])[0][:100]
            hint = f"Name the column of the texts: --set {shlex.quote(f'data_options.text={name}')}"
            raise InvalidInput(f"The header of {path} names {found}, not {options.text}.", hint=hint)
        while True:
            with _field_limit():
                row = next(rows, None)
            if row is None:
                return
            where = f"{path}:{rows.line_num}"
            if (sample := _parse_record(row, options, where, problems)) is not None:
                yield where, sample
    except csv.Error as error:
        raise InvalidInput(f"{path}:{rows.line_num} cannot be read as CSV: {error}.") from None


@contextmanager
def _field_limit() -> Iterator[None]:
    """Longest field of the csv module while a row is read; it has one limit for the whole process."""
    before = csv.field_size_limit(MAX_LINE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _read_plain(path: Path, options: FilesConfig, problems: DataProblems) -> Iterator[tuple[str, Sample]]:
    for number, line in read_lines(path, problems):
        if line and line.strip():
            yield f"{path}:{number}", line


def _read_jsonl(path: Path, options: FilesConfig, problems: DataProblems) -> Iterator[tuple[str, Sample]]:
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
        if (sample := _parse_record(row, options, where, problems)) is not None:
            yield where, sample


def _read_parquet(path: Path, options: FilesConfig, problems: DataProblems) -> Iterator[tuple[str, Sample]]:
    """Read the rows one by one; a text that the file stores once for many rows is also once in memory."""
    parquet = require_extra("pyarrow.parquet")
    fields = (options.text, options.source, options.target, options.label, options.messages)
    try:
        schema = parquet.read_schema(path)
        columns = [name for name in fields if name in schema.names]
        metadata = parquet.read_metadata(path)
        leaves = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        used = [(i, leaf) for i, leaf in enumerate(leaves) if leaf.partition(".")[0] in columns]
        # a column of a row group has to fit into memory: a page of it may be a single text
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        largest = max((group.column(i).total_uncompressed_size for group in groups for i, _ in used), default=0)
        if largest > MAX_COLUMN_BYTES:
            hint = "Write it with smaller row groups, for example with row_group_size=10_000."
            raise InvalidInput(f"{path} has a row group with {largest:,} bytes in one column.", hint=hint)
        file = parquet.ParquetFile(path, read_dictionary=[leaf for _, leaf in used])
        number = 0
        for batch in file.iter_batches(batch_size=_PARQUET_BATCH, columns=columns):
            for index in range(batch.num_rows):
                number += 1
                where = f"{path}:{number}"
                try:
                    row = {name: batch.column(name)[index].as_py() for name in columns}
                except UnicodeDecodeError:
                    problems.add(where, "the row is not UTF-8")
                    continue
                if (sample := _parse_record(row, options, where, problems)) is not None:
                    yield where, sample
    except (OSError, ValueError, KeyError) as error:  # pyarrow's errors derive from these
        raise InvalidInput(f"{path} cannot be read as parquet: {error}.") from None


def _parse_record(record: object, options: FilesConfig, where: str, problems: DataProblems) -> Sample | None:
    """Return the sample of a record, or None after reporting a problem."""
    if not isinstance(record, dict):
        problems.add(where, "the row is not an object with named fields")
        return None
    if options.messages in record:
        return _parse_messages(record[options.messages], where, problems)
    if options.source in record or options.target in record:
        fields: tuple[str, ...] = (options.source, options.target)
    elif record.get(options.label) is not None:
        fields = (options.text, options.label)
    else:
        fields = (options.text,)
    texts: list[str] = []
    for key in fields:
        value = record.get(key)
        if key == options.label and isinstance(value, int):
            value = str(value)
        if reason := _invalid_reason(value):
            problems.add(where, f'"{key}" {reason}')
            return None
        texts.append(str(value))
    if len(fields) == 1:
        return texts[0]
    first, second = texts
    return TextPair(first, second) if fields[0] == options.source else LabelledText(first, second)


def _parse_messages(messages: object, where: str, problems: DataProblems) -> Sample | None:
    """Return a conversation that has an answer, or None after reporting a problem."""
    rows = [row for row in messages if isinstance(row, dict)] if isinstance(messages, list) else []
    if not isinstance(messages, list) or len(rows) < len(messages):
        problems.add(where, '"messages" is not a list of objects with role and content')
        return None
    for name in ("role", "content"):
        if reason := next((reason for row in rows if (reason := _invalid_reason(row.get(name)))), None):
            problems.add(where, f'the "{name}" of a message {reason}')
            return None
    if all(row["role"] != "assistant" for row in rows):
        problems.add(where, 'there is no answer: no message has the role "assistant"')
        return None
    return Conversation(tuple((row["role"], row["content"]) for row in rows))


def _invalid_reason(value: object) -> str | None:
    if value is None:
        return "is missing"
    if not isinstance(value, str):
        return "is not text"
    if len(value) > MAX_LINE_BYTES:
        return f"is longer than {MAX_LINE_BYTES >> 20} MiB"
    if not value.strip():
        return "is empty"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return "contains an unpaired surrogate"
    return None


def _read_tsv(path: Path, options: FilesConfig, problems: DataProblems) -> Iterator[tuple[str, Sample]]:
    """Read two columns: source and target; or text and label, if a header line names them."""
    make_sample: Callable[[str, str], Sample] = TextPair
    for number, line in read_lines(path, problems):
        if line is None or not line.strip():
            continue
        cells = line.split("\t")
        if number == 1 and cells in ([options.text, options.label], [options.source, options.target]):
            make_sample = LabelledText if cells[0] == options.text else TextPair
        elif len(cells) != 2:
            columns = "column" if len(cells) == 1 else "columns"
            problems.add(f"{path}:{number}", f"the row has {len(cells)} {columns}, not 2")
        elif not (cells[0].strip() and cells[1].strip()):
            problems.add(f"{path}:{number}", f"column {1 if not cells[0].strip() else 2} is empty")
        else:
            yield f"{path}:{number}", make_sample(cells[0], cells[1])


def _read_aligned(source: Path, target: Path, problems: DataProblems) -> Iterator[tuple[str, Sample]]:
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
            yield f"{source}:{number}", TextPair(first, second)
