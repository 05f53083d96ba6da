"""One door to everything that can be learned from: a built-in name, a file, a folder, or several files."""

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
    """A corpus that comes with peasy. `variant` is the option that a colon sets: `locales:en-de`."""

    name: str
    kind: str
    says: str
    home: str
    options: str
    variant: str
    usage: str

    def open(self, variant: str | None, seed: int, options: dict[str, Any]) -> Corpus:
        """The corpus itself, with its options read and checked."""
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
        _at("stories", "stories", "text", "small stories in which a pronoun must be understood", "topic", "stories"),
        _at("opinions", "opinions", "labelled", "what people like and do not like, and say so", "topic", "opinions"),
        _at("stdlib", "stdlib", "text", "what Python says about itself", "part", "stdlib:docstrings|topics|source"),
        _at("locales", "locales", "pairs", "dates, units, money, lists, times and names", "languages", "locales:en-fr"),
        _at("puzzles", "copy", "text", "letters to be repeated", "length", "copy:12"),
        _at("puzzles", "recall", "text", "the value of a key that was told long ago", "distance", "recall:16"),
    ]
)
"""Every corpus that needs no download, by name."""


def open_corpus(data: Data | Corpus, *, seed: int = 0, **options: Any) -> Corpus:
    """What to learn from: a built-in name (`stories`, `locales:en-de`), a file, a folder, or a list of files.

    Options belong to what is opened: `length=20` for `copy`, `valid="held.txt"` or `lines=True` for files. A built-in
    name comes before a file of the same name: write `./stories` for the file.

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
        raise InvalidInput("No data was named.", hint=f"There are {', '.join(BUILT_IN)}, or give a file.")
    for path in paths:
        _must_exist(path)
    return open_files(paths, config.read(FileOptions, options, where="data"))


def _parts(data: str) -> list[str]:
    """`train.en,train.fr` are two files, unless there is one of that very name."""
    return data.split(",") if "," in data and not Path(data).exists() else [data]


def _must_exist(path: Path) -> None:
    if path.exists():
        return
    near = did_you_mean(str(path).partition(":")[0], BUILT_IN)
    beside = did_you_mean(path.name, (each.name for each in path.parent.iterdir())) if path.parent.is_dir() else None
    raise NotFound(
        f"There is no corpus or file {path}.",
        hint=near or beside or f"Built in: {', '.join(BUILT_IN)}. See: peasy data",
    )
