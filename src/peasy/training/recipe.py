"""Training recipe: all settings of a run as typed dataclasses, with presets in recipes.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Gt

from peasy import config
from peasy.config import JsonDict, merge_settings
from peasy.datasets.records import FilesConfig
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.models.preset import ModelKind, ModelSize
from peasy.models.preset import preset as model_preset
from peasy.models.preset import presets as model_presets
from peasy.parameters import BoundedSettings
from peasy.training.objective import ObjectiveConfig
from peasy.training.optimizer import AdamWConfig, OptimizerConfig
from peasy.training.schedule import CosineSchedule, Schedule

Precision = Literal["auto", "float32", "bfloat16"]
MODEL_KINDS: tuple[str, ...] = get_args(ModelKind)
MODEL_SIZES: tuple[str, ...] = get_args(ModelSize)


class TokenizerConfig(BoundedSettings):
    """Tokenizer settings."""

    algorithm: Literal["characters", "words", "bpe", "wordpiece", "unigram"] = "bpe"
    """Tokenizer algorithm: single characters, whole words, or subwords by bpe, wordpiece or unigram."""
    vocab_size: Annotated[int, Ge(1)] | None = None
    """Vocabulary size, in tokens; null: the default of the algorithm."""
    lowercase: bool = False
    """Whether text is lowercased before it is tokenized."""


class SeqLenWarmup(BoundedSettings):
    """Sequence-length warmup: windows of `seq_len` tokens, in larger batches, until this fraction of the run."""

    seq_len: Annotated[int, Ge(1)]
    """Sequence length during the warmup, in tokens."""
    until_fraction: Annotated[float, Ge(0)] = 0.7
    """Fraction of the run that the warmup lasts, 0 to 1."""


class Recipe(BoundedSettings):
    """Settings of a training run."""

    model_kind: ModelKind
    """Model kind; the first argument of `peasy train`."""
    preset: ModelSize = "small"
    """Model size; `peasy train --preset`."""
    data: str = ""
    """Dataset name or files; `peasy train --data`."""
    seed: int = 0
    """Random seed of weights, order of samples and dropout."""
    steps: Annotated[int, Ge(1)] | None = None
    """Budget in optimizer steps; null: see minutes. Without either, one epoch."""
    minutes: Annotated[float, Gt(0)] | None = None
    """Budget in minutes of wall-clock time, above 0; null: see steps."""
    init_from: str | None = None
    """Model whose weights and tokenizer the run starts from; null: random weights."""
    data_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the dataset."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """Tokenizer that is trained on the data."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the architecture of the preset."""
    objective: ObjectiveConfig | None = None
    """Training objective; null: the usual one of the model kind and the data."""
    seq_len: Annotated[int, Ge(1)] = 128
    """Sequence length, in tokens; at most the model's max_seq_len."""
    seq_len_warmup: SeqLenWarmup | None = None
    """Sequence-length warmup: shorter sequences in larger batches first; null: none."""
    sample_unit: Literal["windows", "documents"] = "windows"
    """What a sequence is: a window of the text, or a whole document."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Sequences per optimizer step, over all micro-batches and processes."""
    grad_accum_steps: Annotated[int, Ge(1)] = 1
    """Micro-batches per optimizer step (gradient accumulation); must divide batch_size."""
    optimizer: OptimizerConfig = AdamWConfig()
    """Optimizer."""
    schedule: Schedule = CosineSchedule()
    """Learning-rate schedule."""
    grad_clip: Annotated[float, Ge(0)] | None = 1.0
    """Largest norm of the gradient; it is scaled down to this. null: no clipping."""
    precision: Precision = "auto"
    """Precision of matrix products; auto: bfloat16 if the hardware supports it."""
    compile: bool = False
    """Whether the forward pass is compiled by torch.compile."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Strategy for several processes: a full copy of the model in each (ddp), or a shard (fsdp)."""
    num_validations: Annotated[int, Ge(0)] = 10
    """Validations per run, evenly spaced."""
    validation_tokens: Annotated[int, Ge(1)] = 20_000
    """Tokens per validation; the last one may use more."""
    patience: Annotated[int, Ge(1)] | None = None
    """Early stopping: the run ends after this many validations without a lower loss, and the checkpoint with the lowest
    one is kept; null: it uses its budget."""
    num_samplings: Annotated[int, Ge(0)] = 5
    """How often texts are sampled from the model per run, evenly spaced."""
    num_saves: Annotated[int, Ge(0)] = 10
    """Checkpoints per run, evenly spaced; the last step is always saved."""
    keep_checkpoints: Annotated[int, Ge(1)] = 3
    """Number of newest checkpoints to keep."""
    prompts: tuple[str, ...] = ()
    """Prompts that the samples continue; empty: beginnings of validation texts."""
    tracked_sentence: str | None = None
    """Sentence whose attention is recorded at each save; null: the first validation text."""
    sinks: tuple[str, ...] = ()
    """Event sinks by name, such as tensorboard."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and self.minutes is not None:
            raise InvalidInput("Set steps or minutes, not both.", hint="Leave one of them out.")
        if self.batch_size % self.grad_accum_steps:
            message = f"A batch of {self.batch_size} cannot be split into {self.grad_accum_steps} equal parts."
            raise InvalidInput(message, hint="grad_accum_steps must divide batch_size.")

    def batch_shape(self, done: float) -> tuple[int, int]:
        """Return batch size and sequence length when the fraction `done` of the run is over."""
        if self.seq_len_warmup is None or done >= self.seq_len_warmup.until_fraction:
            return self.batch_size, self.seq_len
        seq_len = min(self.seq_len_warmup.seq_len, self.seq_len)
        return self.batch_size * (self.seq_len // seq_len), seq_len


def make_recipe(
    kind: str, preset: str | None = None, settings: Mapping[str, object] | None = None, **overrides: object
) -> Recipe:
    """Return the recipe of a model kind and size, changed by `settings` and by `overrides` that are not None.

    The size is `preset`, else that of the settings, else small. A budget in steps replaces one in minutes, and the
    other way round.

    >>> make_recipe("gpt", "tiny", {"optimizer": {"lr": 0.01}}, steps=100).optimizer.lr
    0.01
    """
    if kind not in MODEL_KINDS:
        hint = did_you_mean(kind, MODEL_KINDS) or f"Known: {', '.join(MODEL_KINDS)}."
        raise NotFound(f'There is no model kind "{kind}".', hint=hint)
    settings = settings or {}
    preset = str(preset or settings.get("preset") or "small")
    if (meant := settings.get("model_kind", kind)) != kind:
        hint = "Train that kind, or give other settings."
        raise InvalidInput(f"The settings are those of {meant}, not of {kind}.", hint=hint)
    sizes = [size for size in MODEL_SIZES if f"{kind}-{size}" in {known.name for known in model_presets()}]
    if preset not in sizes:
        raise NotFound(f'{kind} has no preset "{preset}".', hint=f"There are {', '.join(sizes)}.")
    _check_setting_names(kind, preset, settings)
    presets = _recipe_presets()[kind]
    data: JsonDict = {key: value for key, value in presets.items() if key not in MODEL_SIZES}
    for level in (presets.get(preset, {}), settings, {key: v for key, v in overrides.items() if v is not None}):
        budgets = [name for name in ("steps", "minutes") if level.get(name) is not None]
        if len(budgets) == 1:
            data |= {"steps": None, "minutes": None}
        data = merge_settings(data, level)
    return config.read(Recipe, data | {"model_kind": kind, "preset": preset}, where="recipe")


_MEANINGS = {
    name: setting
    for setting, names in {
        "num_heads": "heads n_head n_heads", "num_layers": "layers n_layer n_layers", "lr": "learning_rate",
        "d_model": "width n_embd hidden_size", "warmup": "warmup_steps",
        "patience": "early_stopping early_stopping_patience",
        "num_validations": "eval_steps eval_interval eval_every", "num_saves": "save_steps save_every checkpoint_every",
        "grad_clip": "max_grad_norm", "precision": "bf16 fp16 mixed_precision", "sinks": "report_to wandb",
    }.items()
    for name in names.split()
}  # fmt: skip
"""Names that other tools give to settings."""


def _check_setting_names(kind: str, size: str, settings: Mapping[str, object]) -> None:
    """Raise for a setting that is not one of a recipe, with the path of the one that is meant: `optimizer.lr`."""
    known = [field.name for field in fields(Recipe)]
    for name in settings:
        if name in known:
            continue
        tables = {"model": config.to_plain(model_preset(f"{kind}-{size}")), "data_options": vars(FilesConfig())}
        tables |= {key: value for key, value in _recipe_presets()[kind].items() if isinstance(value, dict)}
        paths = [*config.flatten({key: table for key, table in tables.items() if key not in MODEL_SIZES})]
        paths += [f"tokenizer.{field.name}" for field in fields(TokenizerConfig)]
        wanted = _MEANINGS.get(name, name)
        meant = [wanted] if wanted in known else [path for path in paths if path.rpartition(".")[2] == wanted]
        hint = f"Did you mean {' or '.join(list(dict.fromkeys(meant))[:3])}?" if meant else did_you_mean(wanted, known)
        hint = hint or f"Known: {', '.join(known)}. See docs/settings.md."
        raise InvalidInput(f"{name}: unknown setting.", hint=hint)


def changed_settings(old: Recipe, new: Recipe) -> list[str]:
    """Return the dotted paths of the settings in which two recipes differ."""
    return _changed_paths(config.to_plain(old), config.to_plain(new), "")


def _changed_paths(old: object, new: object, prefix: str) -> list[str]:
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return [] if old == new else [prefix]
    paths = ((old.get(key), new.get(key), f"{prefix}.{key}".lstrip(".")) for key in sorted({*old, *new}))
    return [path for one in paths for path in _changed_paths(*one)]


@cache
def _recipe_presets() -> JsonDict:
    return tomllib.loads((files("peasy.training") / "recipes.toml").read_text(encoding="utf-8"))
