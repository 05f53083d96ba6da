"""Which files make up a corpus, and how: by their suffixes, by their names, by what the user says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peasy.corpora.corpus import Corpus
from peasy.corpora.rows import Group, Keys, Rows
from peasy.corpora.running import RunningText
from peasy.errors import InvalidInput

ROWS = {".jsonl", ".ndjson", ".tsv", ".parquet"}
_PACKED = {".gz", ".bz2", ".xz", ".zst", ".zip", ".7z"}
_HINTS = {
    ".json": "One object per line in a .jsonl file.",
    ".csv": "Two columns with a tab between them in a .tsv file, or a .jsonl.",
} | dict.fromkeys(_PACKED, "Unpack it first.")
_SPLITS = {"train": "train", "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid", "test": "test"}
_ABOUT = ("readme", "licence", "license", "copying", "notice", "changelog")


@dataclass(frozen=True)
class FileOptions:
    """How the user's files are read.

    `valid` and `test` name files that are held out. `lines`: each line of a text file is a document of its own.
    `pairs`: two text files are aligned, line by line. `strict`: the first bad row is refused instead of counted.
    `suffix` chooses the files of a folder. `text`, `source`, `target`, `label` name the fields of a row.
    """

    valid: str | list[str] | None = None
    test: str | list[str] | None = None
    lines: bool = False
    pairs: bool = False
    strict: bool = False
    suffix: str | None = None
    text: str = "text"
    source: str = "source"
    target: str = "target"
    label: str = "label"


def open_files(paths: Sequence[Path], options: FileOptions) -> Corpus:
    """The corpus that some files or folders make up."""
    name = ",".join(map(str, paths))
    files: dict[str, list[Path]] = {}
    for path in (found for given in paths for found in _inside(given, options)):
        split = _split_of(path) if len(paths) > 1 or paths[0].is_dir() else "train"
        files.setdefault(split, []).append(path)
    for split, held in (("valid", options.valid), ("test", options.test)):
        for given in [held] if isinstance(held, str) else held or []:
            files.setdefault(split, []).extend(_inside(Path(given), options))
    if "train" not in files:
        raise InvalidInput(
            f"{name} has nothing to learn from.", hint="Files that are named valid or test are held out."
        )
    if _are_rows(files, options):
        groups = {split: _groups(held, options) for split, held in files.items()}
        keys = Keys(options.text, options.source, options.target, options.label)
        return Rows(name, groups, keys=keys, strict=options.strict)
    return RunningText(name, files)


def _inside(path: Path, options: FileOptions) -> list[Path]:
    if not path.is_dir():
        _refuse_suffix(path)
        return [path]
    found = sorted(each for each in path.rglob("*") if each.is_file() and not _is_hidden(each.relative_to(path)))
    found = [each for each in found if not each.stem.lower().startswith(_ABOUT)]
    if options.suffix:
        chosen = [each for each in found if each.suffix.lower() == "." + options.suffix.lower().lstrip(".")]
    else:
        chosen = _of_one_kind(path, found)
    if not chosen:
        told = f"with the suffix {options.suffix}" if options.suffix else "of text, .jsonl, .tsv or .parquet"
        raise InvalidInput(f"{path} holds no file {told}.", hint="Text files end in .txt; others are chosen by suffix.")
    return chosen


def _of_one_kind(folder: Path, found: list[Path]) -> list[Path]:
    """All files that can be read; text and rows together would be a guess."""
    texts = [each for each in found if each.suffix.lower() in (".txt", ".text")]
    rows = [each for each in found if each.suffix.lower() in ROWS]
    if texts and rows:
        raise InvalidInput(
            f"{folder} holds running text ({texts[0].name}) and rows ({rows[0].name}).",
            hint=f"Say which: suffix=txt or suffix={rows[0].suffix[1:]}.",
        )
    if texts or rows:
        return texts or rows
    partners = [each for each in found if any(_are_partners(each, other) for other in found)]
    return partners if len(partners) % 2 == 0 else []


def _are_partners(one: Path, other: Path) -> bool:
    """`train.en` and `train.fr` belong together."""
    return one != other and one.parent == other.parent and one.stem == other.stem and bool(one.suffix and other.suffix)


def _are_rows(files: dict[str, list[Path]], options: FileOptions) -> bool:
    every = [path for held in files.values() for path in held]
    rows = [path for path in every if path.suffix.lower() in ROWS]
    if rows and len(rows) < len(every):
        other = next(path for path in every if path not in rows)
        raise InvalidInput(f"{rows[0]} holds rows and {other} running text: one corpus is one or the other.")
    return bool(rows) or options.lines or options.pairs or _is_aligned(files["train"])


def _is_aligned(paths: list[Path]) -> bool:
    known = {*ROWS, ".txt", ".text"}
    return len(paths) == 2 and _are_partners(*paths) and not known & {path.suffix.lower() for path in paths}


def _groups(paths: list[Path], options: FileOptions) -> list[Group]:
    if not (options.pairs or _is_aligned(paths)) or any(path.suffix.lower() in ROWS for path in paths):
        return [(path,) for path in paths]
    if len(paths) != 2:
        raise InvalidInput(f"Pairs are two files, line by line; these are {len(paths)}: {', '.join(map(str, paths))}.")
    return [(paths[0], paths[1])]


def _split_of(path: Path) -> str:
    """`valid.txt`, `news.valid.txt` and `news-dev.tsv` are held out; so is what stands in a folder `valid`."""
    last = path.stem.lower().replace("-", ".").replace("_", ".").rpartition(".")[2]
    return _SPLITS.get(last) or _SPLITS.get(path.parent.name.lower(), "train")


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _refuse_suffix(path: Path) -> None:
    if hint := _HINTS.get(path.suffix.lower()):
        raise InvalidInput(f"{path} is not of a kind that can be read.", hint=hint)
