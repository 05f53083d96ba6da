"""The recipe: everything that decides what a run does, as typed settings; presets are data."""
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
    """How text is cut: `by` characters, words, bpe, wordpiece or unigram; how many tokens there may be."""

    by: Literal["characters", "words", "bpe", "wordpiece", "unigram"] = "bpe"
    vocabulary: int | None = None
    lowercase: bool = False

    def __post_init__(self) -> None:
        check(self, vocabulary=1)


@dataclass(frozen=True)
class ShortStart:
    """Windows of only `context` tokens, more of them in a batch, until this share of the run is over."""

    context: int
    until: float = 0.7

    def __post_init__(self) -> None:
        check(self, context=1, until=0)


@dataclass(frozen=True)
class Recipe:
    """What a run does.

    `trains` and `preset` name the model, `model` says what differs from its preset; `corpus` holds options of the data,
    `origin` is the model that the weights come from. `batch` counts samples of a step, taken in `accumulate` parts;
    of a text the samples are `rows`: windows of running text, or whole documents.
    `steps` or `minutes` is the budget. `validate`, `sample` and `save` say how often in a run, evenly spread; the
    newest `keep` checkpoints stay. `prompts` are written on, `sentence` is watched. `parallel` says how several
    processes share a model: all of it in each (ddp), or in shards (fsdp).
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
            raise InvalidInput("A run is given steps or minutes, not both.", hint="Leave one of them out.")
        if self.batch % self.accumulate:
            raise InvalidInput(
                f"A batch of {self.batch} cannot be taken in {self.accumulate} equal parts.",
                hint="accumulate must divide batch.",
            )

    def rows_and_context(self, done: float) -> tuple[int, int]:
        """How many samples a step takes and how long they are, when `done` of the run is over."""
        if self.short is None or done >= self.short.until:
            return self.batch, self.context
        context = min(self.short.context, self.context)
        return self.batch * (self.context // context), context


def make_recipe(kind: str, preset: str = "small", settings: Mapping[str, Any] | None = None, **given: Any) -> Recipe:
    """The recipe of a kind and a size, with `settings` put over it; None in `given` leaves the preset's value.

    >>> make_recipe("gpt", "tiny", {"optimizer": {"lr": 0.01}}, steps=100).optimizer.lr
    0.01
    """
    if kind not in KINDS:
        raise NotFound(f'There is no kind "{kind}".', hint=did_you_mean(kind, KINDS) or f"Known: {', '.join(KINDS)}.")
    if preset not in SIZES:
        raise NotFound(f'There is no preset "{preset}".', hint=f"Known: {', '.join(SIZES)}.")
    table = _presets()[kind]
    data: dict[str, Any] = {key: value for key, value in table.items() if key not in SIZES}
    data = over(over(data, table.get(preset, {})), settings or {})
    given = {key: value for key, value in given.items() if value is not None}
    asked = {**(settings or {}), **given}
    if "steps" in asked and "minutes" not in asked:  # one budget takes the place of the preset's
        data.pop("minutes", None)
    return config.read(Recipe, data | given | {"trains": kind, "preset": preset}, where="recipe")


def over(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with `changes` put over it, table by table; another `kind` starts a table anew."""
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
    """Which settings two recipes disagree about, by their paths."""
    return _differing(config.plain(old), config.plain(new), "")


def _differing(old: Any, new: Any, where: str) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted({*old, *new})
        return [path for key in keys for path in _differing(old.get(key), new.get(key), f"{where}.{key}".lstrip("."))]
    return [] if old == new else [where]


@cache
def _presets() -> dict[str, Any]:
    return tomllib.loads((files("peasy.training") / "recipes.toml").read_text(encoding="utf-8"))
