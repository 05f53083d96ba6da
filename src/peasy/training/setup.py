"""Run setup: tokenizer, model config, objective and run folder from a recipe."""

import hashlib
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from peasy import config as settings
from peasy import tokenization
from peasy.atomic import atomic_dir
from peasy.checkpoint.loaded_model import ModelBundle
from peasy.checkpoint.safe_folder import SafeFolder, write_json
from peasy.checkpoint.store import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, package_versions
from peasy.checkpoint.tokenizer import read_tokenizer
from peasy.config import JsonDict
from peasy.datasets import Corpus
from peasy.errors import InvalidInput, NotFound
from peasy.models.build import build
from peasy.models.config import ModelConfig, SpecialTokensConfig, Word2VecConfig, read_config
from peasy.models.preset import preset
from peasy.models.protocol import Model
from peasy.parameters import Record
from peasy.tokenization import Tokenizer
from peasy.tokenization.chat_template import DEFAULT_CHAT_TEMPLATE
from peasy.training import objective as objectives
from peasy.training.learner import choose_precision
from peasy.training.objective import NextToken, ObjectiveConfig
from peasy.training.recipe import Recipe
from peasy.training.state import CHECKPOINTS_FOLDER

RECIPE_FILE, MODEL_FILE, ABOUT_FILE = "recipe.json", "model.json", "about.json"
_TOKENIZER_CHARACTERS = 20_000_000
"""Characters used to train a tokenizer; more would change nothing."""


class RunSetup(Record):
    """Resolved configuration of a run before its first step: recipe, model config, tokenizer.

    `target_tokenizer` is the tokenizer of a translator's targets, if it differs.
    """

    recipe: Recipe
    config: ModelConfig
    tokenizer: Tokenizer
    target_tokenizer: Tokenizer | None = None


def resolve_setup(
    recipe: Recipe, corpus: Corpus, pretrained: ModelBundle | None = None, device: str = "cpu"
) -> RunSetup:
    """Resolve all defaults of a recipe, so that the run can be repeated from its folder alone."""
    tokenizer = train_tokenizer(recipe, corpus) if pretrained is None else pretrained.require_tokenizer()
    config = _model_config(recipe, tokenizer) if pretrained is None else _pretrained_config(recipe, pretrained)
    objective = recipe.objective or _default_objective(recipe, config, corpus.kind)
    seq_len = min(recipe.seq_len, config.max_seq_len or recipe.seq_len)
    precision = choose_precision(recipe.precision, device)
    bos, is_next_token = config.special_tokens.bos, isinstance(objective, NextToken)
    if pretrained is None and bos is not None and recipe.sample_unit == "documents" and is_next_token:
        tokenizer = tokenizer.with_bos(bos)  # a prompt begins like the documents
    if corpus.kind == "chat" and tokenizer.chat_template is None:
        tokenizer = tokenizer.with_chat_template(DEFAULT_CHAT_TEMPLATE)
    resolved = replace(recipe, objective=objective, seq_len=seq_len, precision=precision)
    return RunSetup(resolved, config, tokenizer, None if pretrained is None else pretrained.target_tokenizer)


def train_tokenizer(recipe: Recipe, corpus: Corpus) -> Tokenizer:
    """Train a tokenizer on the corpus."""
    options, texts = recipe.tokenizer, _tokenizer_texts(corpus)
    return tokenization.train_tokenizer(texts, options.algorithm, options.vocab_size, lowercase=options.lowercase)


def build_model(setup: RunSetup, pretrained: ModelBundle | None = None) -> Model:
    """Build the model with seeded random weights, or with the weights of `pretrained`."""
    model = build(setup.config, seed=setup.recipe.seed)
    if pretrained is not None:
        model.load_state_dict(pretrained.model.state_dict())
    return model


def _default_objective(recipe: Recipe, config: ModelConfig, data_kind: str) -> ObjectiveConfig:
    """Return the default objective of a model kind for such data ("text", "pairs" or "labelled")."""
    if recipe.model_kind == "ngram":
        return objectives.NGramCounting()
    if recipe.model_kind in ("translator", "rnn-translator"):
        return objectives.Seq2Seq()
    if recipe.model_kind == "encoder":
        return objectives.MaskedToken() if data_kind == "text" else objectives.Contrastive()
    if isinstance(config, Word2VecConfig) and config.task == "skip-gram":
        return objectives.SkipGram(window=config.window)
    return NextToken()


def write_run(folder: Path, setup: RunSetup, corpus: Corpus) -> None:
    """Create the run folder atomically: recipe, model config, tokenizer, versions and hashes."""
    with atomic_dir(folder) as part:
        write_json(part / RECIPE_FILE, settings.to_plain(setup.recipe))
        write_json(part / MODEL_FILE, settings.to_plain(setup.config))
        setup.tokenizer.save(part / TOKENIZER_FILE)
        if setup.target_tokenizer is not None:
            setup.target_tokenizer.save(part / TARGET_TOKENIZER_FILE)
        system = {"processor": platform.machine(), "system": platform.system(), "threads": torch.get_num_threads()}
        data = {"name": corpus.name, "kind": corpus.kind, "sha256": corpus.cached_survey.hash}
        tokenizer = {"sha256": hashlib.sha256((part / TOKENIZER_FILE).read_bytes()).hexdigest()}
        about = {"versions": package_versions(), "machine": system, "data": data, "tokenizer": tokenizer}
        write_json(part / ABOUT_FILE, about)
        (part / CHECKPOINTS_FOLDER).mkdir()


def read_run(run: Path) -> RunSetup:
    """Read what `write_run` wrote."""
    if not (run / RECIPE_FILE).is_file():
        raise NotFound(f"{run} is not a training run: it has no {RECIPE_FILE}.")
    folder = SafeFolder(run)
    recipe = settings.read(Recipe, folder.read_json(RECIPE_FILE), where=str(run / RECIPE_FILE))
    config = read_config(folder.read_json(MODEL_FILE), where=str(run / MODEL_FILE))
    tokenizer = read_tokenizer(folder)
    if tokenizer is None:
        raise InvalidInput(f"{run} has no tokenizer.json.", hint="Start a new run under another name.")
    return RunSetup(recipe, config, tokenizer, read_tokenizer(folder, target=True))


def environment_changes(run: Path) -> str | None:
    """Return a warning if torch or the thread count differ from the start of the run, as results may then differ."""
    about = SafeFolder(run).read_json(ABOUT_FILE)
    versions, threads = about["versions"], about["machine"].get("threads")
    torch_now = package_versions().get("torch")
    compared = (("torch", versions.get("torch"), torch_now), ("threads", threads, torch.get_num_threads()))
    changes = ", ".join(f"{name} was {before} and is now {now}" for name, before, now in compared if before != now)
    return f"{changes}: results may differ in the last digits from an uninterrupted run." if changes else None


def special_ids(tokenizer: Tokenizer) -> SpecialTokensConfig:
    """Return the special token ids of the model. Documents are separated by eos alone, so it also serves as bos."""
    special = tokenizer.special_tokens
    eos = () if special.eos is None else (special.eos,)
    return SpecialTokensConfig(special.pad, special.eos, eos, special.bos, special.mask, special.unk)


def _model_config(recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    name = f"{recipe.model_kind}-{recipe.preset}"
    special = settings.to_plain(special_ids(tokenizer))
    changes: JsonDict = {"vocab_size": len(tokenizer), "special_tokens": special}
    max_seq_len = preset(name).max_seq_len
    if max_seq_len is not None:
        changes["max_seq_len"] = max(max_seq_len, recipe.seq_len)
    return preset(name, **changes | dict(recipe.model))


def _pretrained_config(recipe: Recipe, pretrained: ModelBundle) -> ModelConfig:
    config = pretrained.model.config
    expected, actual = type(preset(f"{recipe.model_kind}-{recipe.preset}")), type(config)
    if actual is not expected:
        message = f"{recipe.init_from} is a {actual.kind} model, but {recipe.model_kind} trains a {expected.kind}."
        raise InvalidInput(message)
    if recipe.model:
        message = f"The architecture of {recipe.init_from} is fixed; {', '.join(recipe.model)} cannot be set."
        raise InvalidInput(message, hint="Omit --set model....")
    return config


def _tokenizer_texts(corpus: Corpus) -> Iterator[str]:
    remaining = _TOKENIZER_CHARACTERS
    for document in corpus.texts("train"):
        yield document
        remaining -= len(document)
        if remaining <= 0:
            return
