"""Catalogue of corpora: opens a built-in corpus by name, or files and folders."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from peasy import config
from peasy.datasets.charset import COMPRESSED_SUFFIXES, data_suffix
from peasy.datasets.corpus import Corpus, FilesCorpus
from peasy.datasets.plain_text import PlainTextCorpus
from peasy.datasets.records import FilesConfig, Group, RecordCorpus
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.parameters import Record

_RECORD_SUFFIXES = {".jsonl", ".ndjson", ".tsv", ".csv", ".parquet"}
_TEXT_SUFFIXES = {".txt", ".text", ".md"}
_HINTS = {".json": "Use a .jsonl file with one object per line."} | dict.fromkeys(
    (".bz2", ".xz", ".zip", ".7z", ".tar"), "Unpack it first; .gz and .zst are read as they are."
)
_MAX_SKIPPED_NAMES = 5
_SPLIT_NAMES = {"train": "train", "test": "test"} | dict.fromkeys(("valid", "validation", "val", "dev"), "valid")
_SKIPPED_NAMES = ("readme", "licence", "license", "copying", "notice", "changelog")


def _open_files(paths: Sequence[Path], options: FilesConfig) -> Corpus:
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
        message = f"{name} has no training files."
        raise InvalidInput(message, hint="Files named valid or test are not used for training.")
    corpus: FilesCorpus
    # Whether the files are read as records; plain texts beside records are one record each.
    rows = any(data_suffix(path) in _RECORD_SUFFIXES for paths in files.values() for path in paths)
    if rows or options.lines or options.pairs or _is_aligned_pair(files["train"]):
        groups = {split: _group_files(paths_of_split, options) for split, paths_of_split in files.items()}
        corpus = RecordCorpus(name, groups, options)
    else:
        corpus = PlainTextCorpus(name, files)
    used = {path for paths_of_split in files.values() for path in paths_of_split}
    folders = [] if options.suffix else [path for path in paths if path.is_dir()]
    unread = [str(file.relative_to(path)) for path in folders for file in _visible_files(path) if file not in used]
    others = len(unread) - _MAX_SKIPPED_NAMES
    corpus.skipped = ", ".join(unread[:_MAX_SKIPPED_NAMES]) + (f" and {others:,} more" if others > 0 else "")
    return corpus


def _files_in(path: Path, options: FilesConfig) -> list[Path]:
    if not path.is_dir():
        if hint := _HINTS.get(data_suffix(path)):
            raise InvalidInput(f"The file type of {path} is not supported.", hint=hint)
        return [path]
    files = [file for file in _visible_files(path) if not file.stem.lower().startswith(_SKIPPED_NAMES)]
    if options.suffix:
        chosen = [file for file in files if data_suffix(file) == "." + options.suffix.lower().lstrip(".")]
    else:  # texts and records together, or else pairs of aligned files
        chosen = [file for file in files if data_suffix(file) in _TEXT_SUFFIXES | _RECORD_SUFFIXES]
        if not chosen:
            chosen = [file for file in files if any(_are_translations(file, other) for other in files)]
            chosen = [] if len(chosen) % 2 else chosen
    if not chosen:
        known = "ending in .txt, .md, .jsonl, .csv, .tsv or .parquet"
        wanted = f"with the suffix {options.suffix}" if options.suffix else known
        raise InvalidInput(f"{path} contains no file {wanted}.", hint="Select other files with the option suffix.")
    return chosen


def _visible_files(folder: Path) -> list[Path]:
    """Return all files of a folder, without hidden ones."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return sorted(file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))


def _are_translations(one: Path, other: Path) -> bool:
    """Return whether two files are the two sides of a pair, like `train.en` and `train.fr`."""
    return one != other and one.parent == other.parent and one.stem == other.stem and bool(one.suffix and other.suffix)


def _is_aligned_pair(paths: list[Path]) -> bool:
    known = _RECORD_SUFFIXES | _TEXT_SUFFIXES
    return len(paths) == 2 and _are_translations(*paths) and not known & {data_suffix(path) for path in paths}


def _group_files(paths: list[Path], options: FilesConfig) -> list[Group]:
    if not (options.pairs or _is_aligned_pair(paths)) or any(data_suffix(path) in _RECORD_SUFFIXES for path in paths):
        return [(path,) for path in paths]
    if len(paths) != 2:
        raise InvalidInput(f"Pairs need two line-aligned files; there are {len(paths)}: {', '.join(map(str, paths))}.")
    return [(paths[0], paths[1])]


def _split_of(path: Path) -> str:
    """Return the split of a file, from the last part of its stem (`news-dev.tsv` is "valid") or from its folder."""
    is_packed = path.suffix.lower() in COMPRESSED_SUFFIXES
    stem = Path(path.stem).stem if is_packed else path.stem
    last = stem.lower().replace("-", ".").replace("_", ".").rpartition(".")[2]
    return _SPLIT_NAMES.get(last) or _SPLIT_NAMES.get(path.parent.name.lower(), "train")


DataSource = str | Path | Sequence[str | Path]


class _BuiltInCorpus(Record):
    """Built-in corpus. `variant_option` is the option set after a colon: `locales:en-de`."""

    name: str
    kind: str
    description: str
    variant_option: str
    usage: str
    module: str

    @property
    def config_class(self) -> str:
        """Name of the class of its options."""
        return f"{self.name.capitalize()}Config"

    def open(self, variant: str | None, seed: int, options: dict[str, object]) -> Corpus:
        """Return the corpus, with its options parsed and checked."""
        module = import_module(self.module)
        if variant is not None:
            options = config.apply_setting(options, f"{self.variant_option}={variant}")
        make_corpus: Callable[..., Corpus] = getattr(module, self.name.capitalize())
        return make_corpus(config.read(getattr(module, self.config_class), options, where=self.name), seed=seed)


BUILT_IN = {
    name: _BuiltInCorpus(name, kind, description, variant, usage, f"peasy.datasets.{module}")
    for module, name, kind, description, variant, usage in (
        ("stories", "stories", "text", "short stories that test pronoun resolution", "topic", "stories"),
        ("opinions", "opinions", "labelled", "short opinions with topic and sentiment", "topic", "opinions"),
        ("stdlib", "stdlib", "text", "Python's docstrings, reference or source", "part",
         "stdlib:docstrings|topics|source"),
        ("locales", "locales", "pairs", "dates, units, money, lists, times and names", "languages", "locales:en-fr"),
        ("puzzles", "copy", "text", "copy task: repeat a sequence of letters", "length", "copy:12"),
        ("puzzles", "repeats", "text", "repeated random sequences of different lengths", "max_length", "repeats:16"),
        ("puzzles", "recall", "text", "associative recall of an earlier value", "distance", "recall:16"),
    )
}  # fmt: skip
"""All corpora that need no download, by name."""


def open_corpus(data: DataSource | Corpus, *, seed: int = 0, **options: object) -> Corpus:
    """Open training data: a built-in name (`stories`, `locales:en-de`), a file, a folder, or a list of files.

    Options depend on the data: `length=20` for `copy`, `valid="valid.txt"` or `lines=True` for files. A built-in
    name takes precedence over a file of the same name: write `./stories` for the file.

    >>> next(open_corpus("copy:5").documents("valid"))
    'e e m a k | e e m a k'
    """
    if isinstance(data, Corpus):
        return data
    if isinstance(data, str):
        name, colon, variant = data.partition(":")
        if name in BUILT_IN:
            return BUILT_IN[name].open(variant if colon else None, seed, options)
        # train.en,train.fr are two files, unless a file has that exact name
        data = data.split(",") if "," in data and not Path(data).exists() else [data]
    paths = [data] if isinstance(data, Path) else [Path(path) for path in data]
    if not paths:
        raise InvalidInput("No data given.", hint=f"Use a file, or one of {', '.join(BUILT_IN)}.")
    for path in paths:
        if not path.exists():
            neighbours = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
            hint = did_you_mean(str(path).partition(":")[0], BUILT_IN) or did_you_mean(path.name, neighbours)
            hint = hint or f"Built in: {', '.join(BUILT_IN)}. See: peasy data"
            raise NotFound(f"There is no corpus or file {path}.", hint=hint)
    return _open_files(paths, config.read(FilesConfig, options, where="data"))
