"""Run setup: tokenizer, model config, objective and run folder from a recipe."""

import hashlib
import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from peasy import config as settings
from peasy import text
from peasy.checkpoint.folder import Folder
from peasy.checkpoint.manifest import versions
from peasy.checkpoint.store import TARGET, TOKENIZER
from peasy.checkpoint.tokenizer import read_target_tokenizer, read_tokenizer
from peasy.commit import committed
from peasy.corpora import Corpus
from peasy.errors import InvalidInput, NotFound
from peasy.models.build import build
from peasy.models.config import Config, Special, WordsConfig, read_config
from peasy.models.preset import preset
from peasy.models.protocol import Model
from peasy.text import Tokenizer
from peasy.training.objective import (
    AnyObjective,
    Contrastive,
    Counting,
    MaskedToken,
    NextToken,
    SkipGram,
    SourceToTarget,
)
from peasy.training.precision import choose_precision
from peasy.training.recipe import Recipe
from peasy.training.state import CHECKPOINTS

RECIPE, MODEL, ABOUT = "recipe.json", "model.json", "about.json"
_ENOUGH = 20_000_000
"""Characters used to train a tokenizer; more would change nothing."""


@dataclass(frozen=True)
class Origin:
    """Pretrained model to start from, with its tokenizer; `target_tokenizer` is that of a translator's targets."""

    name: str
    model: Model
    tokenizer: Tokenizer
    answers: Tokenizer | None = None


@dataclass(frozen=True)
class Setup:
    """Resolved configuration of a run before its first step: recipe, model config, tokenizer.

    `target_tokenizer` is the tokenizer of a translator's targets, if it differs.
    """

    recipe: Recipe
    config: Config
    tokenizer: Tokenizer
    answers: Tokenizer | None = None


def set_up(recipe: Recipe, corpus: Corpus, origin: Origin | None = None, device: str = "cpu") -> Setup:
    """Resolve all defaults of a recipe, so that the run can be repeated from its folder alone."""
    tokenizer = make_tokenizer(recipe, corpus) if origin is None else origin.tokenizer
    config = _model_config(recipe, tokenizer) if origin is None else _origin_config(recipe, origin)
    objective = recipe.objective or fitting_objective(recipe, config, corpus.kind)
    context = min(recipe.context, getattr(config, "context", None) or recipe.context)
    precision = choose_precision(recipe.precision, device)
    resolved = replace(recipe, objective=objective, context=context, precision=precision)
    return Setup(resolved, config, tokenizer, None if origin is None else origin.answers)


def make_tokenizer(recipe: Recipe, corpus: Corpus) -> Tokenizer:
    """Train a tokenizer on the corpus."""
    options = recipe.tokenizer
    return text.train(_beginning(corpus), kind=options.by, vocabulary=options.vocabulary, lowercase=options.lowercase)


def build_model(setup: Setup, origin: Origin | None = None) -> Model:
    """Build the model with seeded random weights, or with the weights of `origin`."""
    model = build(setup.config, seed=setup.recipe.seed)
    if origin is not None:
        model.load_state_dict(origin.model.state_dict())
    return model


def fitting_objective(recipe: Recipe, config: Config, data: str) -> AnyObjective:
    """Return the default objective of a model kind for such data ("text", "pairs" or "labelled")."""
    if recipe.trains == "ngram":
        return Counting()
    if recipe.trains in ("translator", "rnn-translator"):
        return SourceToTarget()
    if recipe.trains == "encoder":
        return MaskedToken() if data == "text" else Contrastive()
    if isinstance(config, WordsConfig) and config.task == "skip-gram":
        return SkipGram(window=config.window)
    return NextToken()


def write_run(folder: Path, setup: Setup, corpus: Corpus) -> None:
    """Create the run folder atomically: recipe, model config, tokenizer, versions and hashes."""
    with committed(folder) as part:
        _write(part / RECIPE, settings.plain(setup.recipe))
        _write(part / MODEL, settings.plain(setup.config))
        setup.tokenizer.save(part / TOKENIZER)
        if setup.answers is not None:
            setup.answers.save(part / TARGET)
        _write(part / ABOUT, _about(part / TOKENIZER, corpus))
        (part / CHECKPOINTS).mkdir()


def read_run(run: Path) -> Setup:
    """Read what `write_run` wrote."""
    if not (run / RECIPE).is_file():
        raise NotFound(f"{run} is not a training run: it has no {RECIPE}.")
    folder = Folder(run)
    recipe = settings.read(Recipe, folder.read_json(RECIPE), where=str(run / RECIPE))
    config = read_config(folder.read_json(MODEL), where=str(run / MODEL))
    tokenizer = read_tokenizer(folder)
    if tokenizer is None:
        raise InvalidInput(f"{run} has no tokenizer.json.", hint="Start a new run under another name.")
    return Setup(recipe, config, tokenizer, read_target_tokenizer(folder))


def changed_ground(run: Path) -> str | None:
    """Return a warning if torch or the thread count differ from the start of the run, as results may then differ."""
    about = Folder(run).read_json(ABOUT)
    recorded = {"torch": about["versions"].get("torch"), "threads": about["machine"].get("threads")}
    current = {"torch": versions().get("torch"), "threads": torch.get_num_threads()}
    changes = [
        f"{name} was {recorded[name]} and is now {current[name]}" for name in current if recorded[name] != current[name]
    ]
    return (
        f"{', '.join(changes)}: results may differ in the last digits from an uninterrupted run." if changes else None
    )


def special_of(tokenizer: Tokenizer) -> Special:
    """Return the special token ids of the model. Documents are separated by eos alone, so it also serves as bos."""
    special = tokenizer.special
    eos = () if special.eos is None else (special.eos,)
    return Special(special.pad, special.eos, eos, special.bos, special.mask, special.unk)


def _model_config(recipe: Recipe, tokenizer: Tokenizer) -> Config:
    name = f"{recipe.trains}-{recipe.preset}"
    changes: dict[str, Any] = {"vocabulary": len(tokenizer), "special": settings.plain(special_of(tokenizer))}
    context = getattr(preset(name), "context", None)
    if context is not None:
        changes["context"] = max(context, recipe.context)
    return preset(name, **changes | dict(recipe.model))


def _origin_config(recipe: Recipe, origin: Origin) -> Config:
    config = origin.model.config
    expected, actual = type(preset(f"{recipe.trains}-{recipe.preset}")), type(config)
    if actual is not expected:
        raise InvalidInput(f"{origin.name} is a {actual.kind} model, but {recipe.trains} trains a {expected.kind}.")
    if recipe.model:
        names = ", ".join(recipe.model)
        raise InvalidInput(
            f"The architecture of {origin.name} is fixed; {names} cannot be set.", hint="Omit --set model...."
        )
    return config


def _beginning(corpus: Corpus) -> Iterator[str]:
    remaining = _ENOUGH
    for document in corpus.texts("train"):
        yield document
        remaining -= len(document)
        if remaining <= 0:
            return


def _about(tokenizer: Path, corpus: Corpus) -> dict[str, Any]:
    return {
        "versions": versions(),
        "machine": {"processor": platform.machine(), "system": platform.system(), "threads": torch.get_num_threads()},
        "data": {"name": corpus.name, "kind": corpus.kind, "sha256": corpus.surveyed.hash},
        "tokenizer": {"sha256": hashlib.sha256(tokenizer.read_bytes()).hexdigest()},
    }


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
