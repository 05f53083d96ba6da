"""Catalogue of corpora: opens a built-in corpus by name, or files and folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

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
    module: str
    config_class: str
    variant_option: str
    usage: str

    def open(self, variant: str | None, seed: int, options: dict[str, Any]) -> Corpus:
        """Return the corpus, with its options parsed and checked."""
        module = import_module(self.module)
        if variant is not None:
            options = config.apply_setting(options, f"{self.variant_option}={variant}")
        return getattr(module, self.name.capitalize())(
            config.read(getattr(module, self.config_class), options, where=self.name), seed=seed
        )


def _built_in(
    module: str, name: str, kind: str, description: str, variant: str, usage: str
) -> tuple[str, BuiltInCorpus]:
    return name, BuiltInCorpus(
        name, kind, description, f"peasy.datasets.{module}", f"{name.capitalize()}Config", variant, usage
    )


BUILT_IN = dict(
    [
        _built_in("stories", "stories", "text", "short stories that test pronoun resolution", "topic", "stories"),
        _built_in("opinions", "opinions", "labelled", "short opinions with topic and sentiment", "topic", "opinions"),
        _built_in(
            "stdlib",
            "stdlib",
            "text",
            "Python's docstrings, reference or source",
            "part",
            "stdlib:docstrings|topics|source",
        ),
        _built_in(
            "locales", "locales", "pairs", "dates, units, money, lists, times and names", "languages", "locales:en-fr"
        ),
        _built_in("puzzles", "copy", "text", "copy task: repeat a sequence of letters", "length", "copy:12"),
        _built_in("puzzles", "recall", "text", "associative recall of an earlier value", "distance", "recall:16"),
    ]
)
"""All corpora that need no download, by name."""


def open_corpus(data: DataSource | Corpus, *, seed: int = 0, **options: Any) -> Corpus:
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
            return BUILT_IN[name].open(variant if colon else None, seed, dict(options))
        paths = [Path(part) for part in _split_paths(data)]
    else:
        paths = [Path(data)] if isinstance(data, Path) else [Path(path) for path in data]
    if not paths:
        raise InvalidInput("No data given.", hint=f"Use a file, or one of {', '.join(BUILT_IN)}.")
    for path in paths:
        _check_exists(path)
    return open_files(paths, config.read(FilesConfig, options, where="data"))


def _split_paths(data: str) -> list[str]:
    """Split `train.en,train.fr` into two files, unless a file has that exact name."""
    return data.split(",") if "," in data and not Path(data).exists() else [data]


def _check_exists(path: Path) -> None:
    if path.exists():
        return
    similar_name = did_you_mean(str(path).partition(":")[0], BUILT_IN)
    similar_file = (
        did_you_mean(path.name, (neighbour.name for neighbour in path.parent.iterdir()))
        if path.parent.is_dir()
        else None
    )
    raise NotFound(
        f"There is no corpus or file {path}.",
        hint=similar_name or similar_file or f"Built in: {', '.join(BUILT_IN)}. See: peasy data",
    )
