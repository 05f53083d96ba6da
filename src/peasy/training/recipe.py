"""Training recipe: all settings of a run as typed dataclasses, with presets in recipes.toml."""
# ruff: noqa: RUF009 (frozen defaults may be shared)

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from peasy import config
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.nn.part import check
from peasy.training.objective import AnyObjective
from peasy.training.optimizer import AdamW, OptimizerRecipe
from peasy.training.precision import Precision
from peasy.training.schedule import Cosine, Schedule

Kind = Literal["gpt", "encoder", "translator", "rnn", "cnn", "rnn-translator", "ngram", "words"]
Size = Literal["tiny", "small", "base"]
KINDS: tuple[str, ...] = get_args(Kind)
SIZES: tuple[str, ...] = get_args(Size)


@dataclass(frozen=True)
class TokenizerRecipe:
    """Tokenizer settings: `algorithm` is characters, words, bpe, wordpiece or unigram."""

    by: Literal["characters", "words", "bpe", "wordpiece", "unigram"] = "bpe"
    vocabulary: int | None = None
    lowercase: bool = False

    def __post_init__(self) -> None:
        check(self, vocabulary=1)


@dataclass(frozen=True)
class ShortStart:
    """Sequence-length warmup: windows of `seq_len` tokens, in larger batches, until this fraction of the run."""

    context: int
    until: float = 0.7

    def __post_init__(self) -> None:
        check(self, context=1, until=0)


@dataclass(frozen=True)
class Recipe:
    """Settings of a training run.

    Model: `model_kind` and `preset` choose the architecture, `model` overrides its settings, `init_from` names a model
    to start from. Data: `data_options` are options of the dataset; `batch_size` sequences per step, in
    `grad_accum_steps` micro-batches; `sample_unit` is windows of plain text or whole documents.
    Budget: `steps` or `minutes`. `num_validations`, `num_samplings` and `num_saves` are counts per run, evenly spaced;
    the newest `keep_checkpoints` checkpoints are kept. `prompts` are continued in samples; the attention of
    `tracked_sentence` is recorded. `parallel`: a full copy in each process (ddp), or shards (fsdp).
    """

    trains: Kind
    preset: Size = "small"
    data: str = ""
    seed: int = 0
    steps: int | None = None
    minutes: float | None = None
    origin: str | None = None
    corpus: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: TokenizerRecipe = TokenizerRecipe()
    model: Mapping[str, Any] = field(default_factory=dict)
    objective: AnyObjective | None = None
    context: int = 128
    short: ShortStart | None = None
    rows: Literal["windows", "documents"] = "windows"
    batch: int = 16
    accumulate: int = 1
    optimizer: OptimizerRecipe = AdamW()
    schedule: Schedule = Cosine()
    clip: float | None = 1.0
    precision: Precision = "auto"
    compile: bool = False
    parallel: Literal["ddp", "fsdp"] = "ddp"
    validate: int = 10
    valid_tokens: int = 20_000
    sample: int = 5
    save: int = 10
    keep: int = 3
    prompts: tuple[str, ...] = ()
    sentence: str | None = None
    sinks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self, steps=1, context=1, batch=1, accumulate=1, clip=0, validate=0, valid_tokens=1, sample=0, save=0)
        check(self, keep=1)
        if self.minutes is not None and not self.minutes > 0:
            raise InvalidInput(f"minutes is {self.minutes}.", hint="minutes must be above 0.")
        if self.steps is not None and self.minutes is not None:
            raise InvalidInput("Set steps or minutes, not both.", hint="Leave one of them out.")
        if self.batch % self.accumulate:
            raise InvalidInput(
                f"A batch of {self.batch} cannot be split into {self.accumulate} equal parts.",
                hint="grad_accum_steps must divide batch_size.",
            )

    def rows_and_context(self, done: float) -> tuple[int, int]:
        """Return batch size and sequence length when the fraction `done` of the run is over."""
        if self.short is None or done >= self.short.until:
            return self.batch, self.context
        context = min(self.short.context, self.context)
        return self.batch * (self.context // context), context


def make_recipe(kind: str, preset: str = "small", settings: Mapping[str, Any] | None = None, **given: Any) -> Recipe:
    """Return the recipe of a model kind and size, overridden by `settings`; None in `given` keeps the preset's value.

    >>> make_recipe("gpt", "tiny", {"optimizer": {"lr": 0.01}}, steps=100).optimizer.lr
    0.01
    """
    if kind not in KINDS:
        raise NotFound(
            f'There is no model kind "{kind}".', hint=did_you_mean(kind, KINDS) or f"Known: {', '.join(KINDS)}."
        )
    if preset not in SIZES:
        raise NotFound(f'There is no preset "{preset}".', hint=f"Known: {', '.join(SIZES)}.")
    presets = _presets()[kind]
    data: dict[str, Any] = {key: value for key, value in presets.items() if key not in SIZES}
    data = over(over(data, presets.get(preset, {})), settings or {})
    given = {key: value for key, value in given.items() if value is not None}
    explicit = {**(settings or {}), **given}
    if "steps" in explicit and "minutes" not in explicit:  # an explicit budget replaces the preset's
        data.pop("minutes", None)
    return config.read(Recipe, data | given | {"trains": kind, "preset": preset}, where="recipe")


def over(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` merged with `changes`, table by table; a different `kind` replaces the whole table."""
    merged = dict(data)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and _alike(old, value):
            value = over(old, value)
        merged[key] = value
    return merged


def _alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "kind" not in new or new["kind"] == old.get("kind")


def differing(old: Recipe, new: Recipe) -> list[str]:
    """Return the dotted paths of the settings in which two recipes differ."""
    return _differing(config.plain(old), config.plain(new), "")


def _differing(old: Any, new: Any, where: str) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted({*old, *new})
        return [path for key in keys for path in _differing(old.get(key), new.get(key), f"{where}.{key}".lstrip("."))]
    return [] if old == new else [where]


@cache
def _presets() -> dict[str, Any]:
    return tomllib.loads((files("peasy.training") / "recipes.toml").read_text(encoding="utf-8"))
