"""Catalogue of corpora: opens a built-in corpus by name, or files and folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from peasy import config
from peasy.corpora.corpus import Corpus
from peasy.corpora.folder import FileOptions, open_files
from peasy.errors import InvalidInput, NotFound, did_you_mean

Data = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class BuiltIn:
    """Built-in corpus. `variant` is the option set after a colon: `locales:en-de`."""

    name: str
    kind: str
    says: str
    home: str
    options: str
    variant: str
    usage: str

    def open(self, variant: str | None, seed: int, options: dict[str, Any]) -> Corpus:
        """Return the corpus, with its options parsed and checked."""
        module = import_module(self.home)
        if variant is not None:
            options = config.assign(options, f"{self.variant}={variant}")
        return getattr(module, self.name.capitalize())(
            config.read(getattr(module, self.options), options, where=self.name), seed=seed
        )


def _at(home: str, name: str, kind: str, says: str, variant: str, usage: str) -> tuple[str, BuiltIn]:
    return name, BuiltIn(name, kind, says, f"peasy.corpora.{home}", f"{name.capitalize()}Options", variant, usage)


BUILT_IN = dict(
    [
        _at("stories", "stories", "text", "short stories that test pronoun resolution", "topic", "stories"),
        _at("opinions", "opinions", "labelled", "short opinions with topic and sentiment", "topic", "opinions"),
        _at(
            "stdlib",
            "stdlib",
            "text",
            "Python's docstrings, reference or source",
            "part",
            "stdlib:docstrings|topics|source",
        ),
        _at("locales", "locales", "pairs", "dates, units, money, lists, times and names", "languages", "locales:en-fr"),
        _at("puzzles", "copy", "text", "copy task: repeat a sequence of letters", "length", "copy:12"),
        _at("puzzles", "recall", "text", "associative recall of an earlier value", "distance", "recall:16"),
    ]
)
"""All corpora that need no download, by name."""


def open_corpus(data: Data | Corpus, *, seed: int = 0, **options: Any) -> Corpus:
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
        paths = [Path(part) for part in _parts(data)]
    else:
        paths = [Path(data)] if isinstance(data, Path) else [Path(path) for path in data]
    if not paths:
        raise InvalidInput("No data given.", hint=f"Use a file, or one of {', '.join(BUILT_IN)}.")
    for path in paths:
        _must_exist(path)
    return open_files(paths, config.read(FileOptions, options, where="data"))


def _parts(data: str) -> list[str]:
    """Split `train.en,train.fr` into two files, unless a file has that exact name."""
    return data.split(",") if "," in data and not Path(data).exists() else [data]


def _must_exist(path: Path) -> None:
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
