"""Catalogue of corpora: opens a built-in corpus by name, or files and folders."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from peasy import config
from peasy.datasets.corpus import Corpus
from peasy.datasets.discover import FilesConfig, open_files
from peasy.errors import InvalidInput, NotFound, did_you_mean

DataSource = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class BuiltInCorpus:
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
    name: BuiltInCorpus(name, kind, description, variant, usage, f"peasy.datasets.{module}")
    for module, name, kind, description, variant, usage in (
        ("stories", "stories", "text", "short stories that test pronoun resolution", "topic", "stories"),
        ("opinions", "opinions", "labelled", "short opinions with topic and sentiment", "topic", "opinions"),
        ("stdlib", "stdlib", "text", "Python's docstrings, reference or source", "part",
         "stdlib:docstrings|topics|source"),
        ("locales", "locales", "pairs", "dates, units, money, lists, times and names", "languages", "locales:en-fr"),
        ("puzzles", "copy", "text", "copy task: repeat a sequence of letters", "length", "copy:12"),
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
    return open_files(paths, config.read(FilesConfig, options, where="data"))
