"""From a recipe to something that can be trained: the tokenizer, the model, the objective, and the run's folder."""

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
"""A tokenizer learns nothing more from characters beyond these."""


@dataclass(frozen=True)
class Origin:
    """A trained model that a run goes on from, with its own tokenizer; `answers` is that of a translator's targets."""

    name: str
    model: Model
    tokenizer: Tokenizer
    answers: Tokenizer | None = None


@dataclass(frozen=True)
class Setup:
    """A run before its first step: what it does, what it trains, and how text is cut.

    `answers` cuts the targets of a translator, where that is another tokenizer.
    """

    recipe: Recipe
    config: Config
    tokenizer: Tokenizer
    answers: Tokenizer | None = None


def set_up(recipe: Recipe, corpus: Corpus, origin: Origin | None = None, device: str = "cpu") -> Setup:
    """Settle what the recipe leaves open, so that the run can be repeated from its folder alone."""
    tokenizer = make_tokenizer(recipe, corpus) if origin is None else origin.tokenizer
    config = _model_config(recipe, tokenizer) if origin is None else _origin_config(recipe, origin)
    objective = recipe.objective or fitting_objective(recipe, config, corpus.kind)
    context = min(recipe.context, getattr(config, "context", None) or recipe.context)
    precision = choose_precision(recipe.precision, device)
    settled = replace(recipe, objective=objective, context=context, precision=precision)
    return Setup(settled, config, tokenizer, None if origin is None else origin.answers)


def make_tokenizer(recipe: Recipe, corpus: Corpus) -> Tokenizer:
    """A tokenizer learned from the corpus."""
    asked = recipe.tokenizer
    return text.train(_beginning(corpus), kind=asked.by, vocabulary=asked.vocabulary, lowercase=asked.lowercase)


def build_model(setup: Setup, origin: Origin | None = None) -> Model:
    """The model with weights drawn from the seed, or taken from where the run goes on from."""
    model = build(setup.config, seed=setup.recipe.seed)
    if origin is not None:
        model.load_state_dict(origin.model.state_dict())
    return model


def fitting_objective(recipe: Recipe, config: Config, data: str) -> AnyObjective:
    """What a model of this kind is asked about such data ("text", "pairs" or "labelled")."""
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
    """The folder of a new run, all at once: recipe, model, tokenizer, versions and hashes."""
    with committed(folder) as part:
        _write(part / RECIPE, settings.plain(setup.recipe))
        _write(part / MODEL, settings.plain(setup.config))
        setup.tokenizer.save(part / TOKENIZER)
        if setup.answers is not None:
            setup.answers.save(part / TARGET)
        _write(part / ABOUT, _about(part / TOKENIZER, corpus))
        (part / CHECKPOINTS).mkdir()


def read_run(run: Path) -> Setup:
    """What `write_run` wrote."""
    if not (run / RECIPE).is_file():
        raise NotFound(f"{run} is not a training run: it has no {RECIPE}.")
    folder = Folder(run)
    recipe = settings.read(Recipe, folder.read_json(RECIPE), where=str(run / RECIPE))
    config = read_config(folder.read_json(MODEL), where=str(run / MODEL))
    tokenizer = read_tokenizer(folder)
    if tokenizer is None:
        raise InvalidInput(f"{run} has no tokenizer.json.", hint="Start the run anew under another name.")
    return Setup(recipe, config, tokenizer, read_target_tokenizer(folder))


def changed_ground(run: Path) -> str | None:
    """What is different here from where the run was begun, as far as its numbers may depend on it."""
    about = Folder(run).read_json(ABOUT)
    then = {"torch": about["versions"].get("torch"), "threads": about["machine"].get("threads")}
    now = {"torch": versions().get("torch"), "threads": torch.get_num_threads()}
    told = [f"{name} was {then[name]} and is {now[name]}" for name in now if then[name] != now[name]]
    return f"{', '.join(told)}: the last digits may differ from an uninterrupted run." if told else None


def special_of(tokenizer: Tokenizer) -> Special:
    """The model's special ids. Documents follow each other with only an end between them: it is also a beginning."""
    found = tokenizer.special
    end = () if found.eos is None else (found.eos,)
    return Special(found.pad, found.eos, end, found.bos, found.mask, found.unk)


def _model_config(recipe: Recipe, tokenizer: Tokenizer) -> Config:
    name = f"{recipe.trains}-{recipe.preset}"
    changes: dict[str, Any] = {"vocabulary": len(tokenizer), "special": settings.plain(special_of(tokenizer))}
    context = getattr(preset(name), "context", None)
    if context is not None:
        changes["context"] = max(context, recipe.context)
    return preset(name, **changes | dict(recipe.model))


def _origin_config(recipe: Recipe, origin: Origin) -> Config:
    config = origin.model.config
    wanted, given = type(preset(f"{recipe.trains}-{recipe.preset}")), type(config)
    if given is not wanted:
        raise InvalidInput(f"{origin.name} is a {given.kind}, and {recipe.trains} trains a {wanted.kind}.")
    if recipe.model:
        told = ", ".join(recipe.model)
        raise InvalidInput(f"{origin.name} has its own sizes; {told} cannot be set.", hint="Leave out --set model....")
    return config


def _beginning(corpus: Corpus) -> Iterator[str]:
    left = _ENOUGH
    for each in corpus.texts("train"):
        yield each
        left -= len(each)
        if left <= 0:
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
