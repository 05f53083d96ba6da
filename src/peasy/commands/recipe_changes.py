"""Training data and recipe changes of `train` and `plan`: settings file, nested settings, dataset suggestions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peasy import config as config_reader
from peasy.commands.result import JsonDict
from peasy.datasets import Corpus, UnlabelledCorpus, open_corpus
from peasy.errors import InvalidInput

DataSource = str | Path | Sequence[str | Path] | Corpus
"""Training data: a built-in dataset, files, or a corpus."""


def recipe_changes(
    settings: Mapping[str, object] | None = None,
    *,
    config: str | Path | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
) -> JsonDict:
    """Merge all changes: `settings` override the TOML or JSON file `config`; `lr` and `batch_size` override both.

    >>> recipe_changes({"optimizer": {"weight_decay": 0.1}}, lr=0.01, batch_size=8)
    {'optimizer': {'weight_decay': 0.1, 'lr': 0.01}, 'batch_size': 8}
    """
    loaded = {} if config is None else config_reader.load(config)
    if not isinstance(loaded, Mapping):
        raise InvalidInput(f"{config} does not contain settings.", hint='For example {"batch_size": 32}.')
    changes = config_reader.merge_settings(loaded, settings or {})
    if lr is not None:
        changes = config_reader.merge_settings(changes, {"optimizer": {"lr": lr}})
    return changes if batch_size is None else changes | {"batch_size": batch_size}


def open_training_data(kind: str, data: DataSource, options: Mapping[str, Any]) -> Corpus:
    """Open the data; labels are dropped unless an encoder is trained."""
    corpus = open_corpus(data, **options)
    return UnlabelledCorpus(corpus) if corpus.kind == "labelled" and kind != "encoder" else corpus


def with_suggested_settings(kind: str, corpus: Corpus, settings: Mapping[str, object]) -> JsonDict:
    """Add the settings that the dataset suggests; explicit settings win, and n-gram counting takes none."""
    return dict(settings) if kind == "ngram" else config_reader.merge_settings(corpus.suggested_settings, settings)
