"""Opens the user's files as a corpus: options, which files to read, and format and split from their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peasy.datasets.corpus import Corpus
from peasy.datasets.plain_text import PlainTextCorpus
from peasy.datasets.records import FieldNames, Group, RecordCorpus
from peasy.errors import InvalidInput

_RECORD_SUFFIXES = {".jsonl", ".ndjson", ".tsv", ".parquet"}
_COMPRESSED = {".gz", ".bz2", ".xz", ".zst", ".zip", ".7z"}
_HINTS = {
    ".json": "Use a .jsonl file with one object per line.",
    ".csv": "Use a .tsv file with two tab-separated columns, or a .jsonl file.",
} | dict.fromkeys(_COMPRESSED, "Unpack it first.")
_SPLIT_NAMES = {"train": "train", "test": "test"} | dict.fromkeys(("valid", "validation", "val", "dev"), "valid")
_SKIPPED_NAMES = ("readme", "licence", "license", "copying", "notice", "changelog")


@dataclass(frozen=True)
class FilesConfig:
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


def open_files(paths: Sequence[Path], options: FilesConfig) -> Corpus:
    """Return the corpus of some files or folders."""
    name = ",".join(map(str, paths))
    files: dict[str, list[Path]] = {}
    for path in (path_inside for given in paths for path_inside in _files_in(given, options)):
        split = _split_of(path) if len(paths) > 1 or paths[0].is_dir() else "train"
        files.setdefault(split, []).append(path)
    for split, paths_of_split in (("valid", options.valid), ("test", options.test)):
        for given in [paths_of_split] if isinstance(paths_of_split, str) else paths_of_split or []:
            files.setdefault(split, []).extend(_files_in(Path(given), options))
    if "train" not in files:
        raise InvalidInput(
            f"{name} has no training files.", hint="Files named valid or test are not used for training."
        )
    if _are_records(files, options):
        groups = {split: _group_files(paths_of_split, options) for split, paths_of_split in files.items()}
        keys = FieldNames(options.text, options.source, options.target, options.label)
        return RecordCorpus(name, groups, field_names=keys, strict=options.strict)
    return PlainTextCorpus(name, files)


def _files_in(path: Path, options: FilesConfig) -> list[Path]:
    if not path.is_dir():
        if hint := _HINTS.get(path.suffix.lower()):
            raise InvalidInput(f"The file type of {path} is not supported.", hint=hint)
        return [path]
    files = sorted(
        file
        for file in path.rglob("*")
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
        and not file.stem.lower().startswith(_SKIPPED_NAMES)
    )
    if options.suffix:
        chosen = [file for file in files if file.suffix.lower() == "." + options.suffix.lower().lstrip(".")]
    else:
        chosen = _select_format(path, files)
    if not chosen:
        wanted = f"with the suffix {options.suffix}" if options.suffix else "ending in .txt, .jsonl, .tsv or .parquet"
        raise InvalidInput(f"{path} contains no file {wanted}.", hint="Select other files with the option suffix.")
    return chosen


def _select_format(folder: Path, files: list[Path]) -> list[Path]:
    """Return all readable files; a mix of plain text and records is ambiguous."""
    texts = [file for file in files if file.suffix.lower() in (".txt", ".text")]
    rows = [file for file in files if file.suffix.lower() in _RECORD_SUFFIXES]
    if texts and rows:
        raise InvalidInput(
            f"{folder} contains both plain text ({texts[0].name}) and records ({rows[0].name}).",
            hint=f"Choose one: suffix=txt or suffix={rows[0].suffix[1:]}.",
        )
    if texts or rows:
        return texts or rows
    partners = [file for file in files if any(_are_translations(file, other) for other in files)]
    return partners if len(partners) % 2 == 0 else []


def _are_translations(one: Path, other: Path) -> bool:
    """Return whether two files are the two sides of a pair, like `train.en` and `train.fr`."""
    return one != other and one.parent == other.parent and one.stem == other.stem and bool(one.suffix and other.suffix)


def _are_records(files: dict[str, list[Path]], options: FilesConfig) -> bool:
    all_paths = [path for split_paths in files.values() for path in split_paths]
    rows = [path for path in all_paths if path.suffix.lower() in _RECORD_SUFFIXES]
    if rows and len(rows) < len(all_paths):
        other = next(path for path in all_paths if path not in rows)
        raise InvalidInput(f"{rows[0]} contains records and {other} plain text: a corpus must be one or the other.")
    return bool(rows) or options.lines or options.pairs or _is_aligned_pair(files["train"])


def _is_aligned_pair(paths: list[Path]) -> bool:
    known = {*_RECORD_SUFFIXES, ".txt", ".text"}
    return len(paths) == 2 and _are_translations(*paths) and not known & {path.suffix.lower() for path in paths}


def _group_files(paths: list[Path], options: FilesConfig) -> list[Group]:
    if not (options.pairs or _is_aligned_pair(paths)) or any(path.suffix.lower() in _RECORD_SUFFIXES for path in paths):
        return [(path,) for path in paths]
    if len(paths) != 2:
        raise InvalidInput(f"Pairs need two line-aligned files; there are {len(paths)}: {', '.join(map(str, paths))}.")
    return [(paths[0], paths[1])]


def _split_of(path: Path) -> str:
    """Return the split of a file, from the last part of its stem (`news-dev.tsv` is "valid") or from its folder."""
    last = path.stem.lower().replace("-", ".").replace("_", ".").rpartition(".")[2]
    return _SPLIT_NAMES.get(last) or _SPLIT_NAMES.get(path.parent.name.lower(), "train")
