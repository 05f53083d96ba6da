"""`train`: start or resume a training run from a model kind and data."""

import inspect
import itertools
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

from peasy import config as reader
from peasy.atomic import refuse_existing
from peasy.checkpoint.paths import data_dir, find_runs, run_path
from peasy.commands.load import LoadedModel, choose_device, load
from peasy.commands.plan import PlanResult, plan
from peasy.commands.recipe_changes import DataSource, open_training_data, recipe_changes, with_suggested_settings
from peasy.commands.result import JsonDict, OnProgress
from peasy.commands.runs import RECIPE, Run
from peasy.datasets import BUILT_IN, Conversation, Corpus, Sample, TextPair, sample_texts
from peasy.datasets.shards import prepare_shards, shards_fingerprint
from peasy.errors import InvalidInput, UsageError
from peasy.generation.sampling_params import SamplingParams
from peasy.models.preset import ModelSize
from peasy.parameters import Record, check_keywords, parameter_names
from peasy.tokenization.chat_template import apply_chat_template
from peasy.training.event import Event, Sampled, Started
from peasy.training.run_folder import random_run_name
from peasy.training.signals import stop_on_signal
from peasy.views.document import pluralize

if TYPE_CHECKING:
    from peasy.models.protocol import Model
    from peasy.tokenization import Tokenizer
    from peasy.training.attention_snapshots import TrackedSentence
    from peasy.training.loop import SampleFn, TrainSpec
    from peasy.training.setup import RunSetup

_RESUMABLE = ("steps", "minutes", "parallel", "patience")
"""Settings that may change when a run is resumed."""
_DATA_HINT = "For example: --data stories. See all: peasy data"


class TrainResult(Run):
    """A finished or interrupted training run. `model` is loaded from the newest checkpoint."""

    @property
    def run(self) -> Run:
        """The run."""
        return self

    @property
    def model(self) -> LoadedModel:
        """The trained model, loaded from its checkpoint."""
        return load(self.folder)


def train_events(
    kind: str,
    data: DataSource | None = None,
    *,
    preset: ModelSize | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    num_processes: int | None = None,
    run: str | Path | None = None,
    init_from: str | Path | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    resume: bool = False,
    sinks: Sequence[Callable[[Event], object] | str] = (),
    progress: OnProgress | None = None,
) -> Generator[Event, None, None]:
    """Yield the events of `train`, which explains the parameters. Closing the iterator stops and saves the run."""
    if num_processes is not None and num_processes > 1 and isinstance(data, Corpus):
        raise InvalidInput("A Corpus object cannot be shared with other processes.", hint="Give its name or files.")
    from peasy.training import loop
    from peasy.training.distributed import is_distributed, main_first, process_group

    start = None if init_from is None else str(init_from)
    options: JsonDict = {"preset": preset, "steps": steps, "minutes": minutes, "seed": seed, "init_from": start}
    given = {key: value for key, value in options.items() if value is not None}
    changes = recipe_changes(settings, config=config, lr=lr, batch_size=batch_size)
    data = data if data is not None else changes.pop("data", None) or None
    request = _TrainRequest(kind, data, given, changes)
    if num_processes in (None, 1) and not is_distributed():
        spec = request.open(_run_folder(run), choose_device(device), resume, progress)
        yield from loop.train(replace(spec, sinks=tuple(sinks)))
        return
    from peasy.training import parallel

    with process_group(num_processes, request.worker_command(device)) as group:
        folder, rank_device = Path(group.broadcast_str(str(_run_folder(run)))), group.device(choose_device(device))
        on_main = partial(request.open, folder, rank_device, resume, progress)
        spec = main_first(group, on_main, partial(request.join_run, folder, rank_device))
        yield from parallel.train(replace(spec, sinks=tuple(sinks)), group)


class TrainOptions(TypedDict, total=False):
    """Keywords of `train`: those of `train_events`."""

    preset: ModelSize | None
    minutes: float | None
    steps: int | None
    seed: int | None
    device: str
    num_processes: int | None
    run: str | Path | None
    init_from: str | Path | None
    lr: float | None
    batch_size: int | None
    config: str | Path | None
    settings: Mapping[str, object] | None
    resume: bool
    sinks: Sequence[Callable[[Event], object] | str]
    progress: OnProgress | None


@overload
def train(
    kind: str, data: DataSource | None = None, *, dry_run: Literal[False] = False, **options: Unpack[TrainOptions]
) -> TrainResult: ...
@overload
def train(
    kind: str, data: DataSource | None = None, *, dry_run: Literal[True], **options: Unpack[TrainOptions]
) -> PlanResult: ...


def train(
    kind: str, data: DataSource | None = None, *, dry_run: bool = False, **options: Unpack[TrainOptions]
) -> TrainResult | PlanResult:
    """Train a model. Ctrl-C saves first; the same call with `resume=True` continues.

    Args:
        kind: Model kind: gpt, encoder, translator, rnn, cnn, rnn-translator, ngram or words.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        preset: Size of the model and its training recipe; default: small. speedrun is a small gpt with token shift and
            n-gram embeddings, which learns faster but can be exported only to ONNX.
        minutes: Time budget; the learning-rate schedule is stretched over it.
        steps: Number of training steps, instead of minutes.
        seed: Random seed of weights, order of samples and dropout.
        num_processes: Number of data-parallel processes on this machine.
        run: Name or folder of the run; default: a random name. After torchrun write --run-name.
        init_from: Fine-tune this model: start from its weights, with its tokenizer.
        lr: Learning rate: the setting optimizer.lr.
        batch_size: Number of sequences per step: the setting batch_size.
        config: File of settings in TOML or JSON, with the same names as --set.
        settings: Changes to the recipe, over those of `config`; `lr` and `batch_size` are short for two of them.
        resume: Resume the run from its last checkpoint.
        sinks: Receivers of every training event: callables, or tensorboard.
        progress: Called with the number of characters tokenized so far, and their total.
        dry_run: Print the estimated time and memory, as peasy plan does, and train nothing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = train("ngram", "copy", preset="tiny", steps=2, run=f"{folder}/pairs")
    >>> result.name
    'pairs'
    """
    check_keywords("train", options, ("dry_run", *parameter_names(train_events)))
    if dry_run:
        return _plan_run(kind, data, options)
    events = train_events(kind, data, **options)
    folder = None
    with stop_on_signal(at_once=True) as stop:
        for event in events:
            stop.at_once = False
            if isinstance(event, Started):
                folder = event.run
                if event.warning:
                    warnings.warn(event.warning, stacklevel=2)
            if stop.requested:
                events.close()
                break
    assert folder is not None
    if stop.signal == signal.SIGINT:
        raise KeyboardInterrupt(f"Saved. Continue with peasy.train({kind!r}, run={str(folder)!r}, resume=True)")
    if stop.signal == signal.SIGTERM:
        raise SystemExit(0)
    return TrainResult(folder.name, folder)


# its keywords are those of `train_events`, spelled out for help and completion
train.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [*inspect.signature(train_events).parameters.values(), inspect.signature(train).parameters["dry_run"]],
    return_annotation=inspect.signature(train).return_annotation,
)


def _plan_run(kind: str, data: DataSource | None, options: TrainOptions) -> PlanResult:
    if unsupported := [name for name in ("resume", "init_from", "num_processes") if options.get(name)]:
        flag = f"--{unsupported[0].replace('_', '-')}"
        raise UsageError(f"A dry run does not support {flag}.", hint=f"Leave out {flag} or --dry-run.")
    if data is None:
        data = recipe_changes(options.get("settings"), config=options.get("config")).get("data")
    if not data:
        raise UsageError("Training needs data.", hint=_DATA_HINT)
    names = ("preset", "minutes", "steps", "seed", "device", "lr", "batch_size", "config", "settings")
    given: JsonDict = {name: options.get(name) for name in names if name in options}
    return plan(kind, data, **given)


class _TrainRequest(Record):
    """Arguments of `train`: only those given explicitly, so that resuming does not change other settings."""

    kind: str
    data: DataSource | None
    given: JsonDict
    settings: JsonDict

    def open(self, folder: Path, device: str, resume: bool, progress: OnProgress | None) -> "TrainSpec":
        """Resume the run in this folder, or start a new one there."""
        if (folder / RECIPE).is_file():
            if resume:
                return self.resume(folder, device, progress)
            hint = "Continue with --resume, or choose another --run."
            raise InvalidInput(f"The run {folder} exists already.", hint=hint)
        refuse_existing(folder)
        return self.start(folder, device, progress)

    def start(self, folder: Path, device: str, progress: OnProgress | None) -> "TrainSpec":
        from peasy.training.recipe import make_recipe
        from peasy.training.setup import resolve_setup, write_run

        if self.data is None:
            raise UsageError("Training needs data.", hint=_DATA_HINT)
        given = dict(self.given)
        corpus = open_training_data(self.kind, self.data, self.settings.get("data_options", {}))
        settings = with_suggested_settings(self.kind, corpus, self.settings)
        recipe = make_recipe(self.kind, given.pop("preset", None), settings, data=_data_name(self.data), **given)
        pretrained = None if recipe.init_from is None else load(recipe.init_from, device="cpu")
        setup = resolve_setup(recipe, corpus, pretrained, device)
        spec = _make_spec(folder, setup, corpus, pretrained, device, progress)
        write_run(folder, setup, corpus)  # last, so that a failed start leaves no folder behind
        return spec

    def resume(self, folder: Path, device: str, progress: OnProgress | None) -> "TrainSpec":
        """Resume the run in this folder; only its budget and parallelism may change."""
        from peasy.training.recipe import Recipe, changed_settings
        from peasy.training.setup import environment_changes, read_run

        setup = read_run(folder)
        new: JsonDict = {"model_kind": self.kind} | self.given
        if self.data is not None:
            new["data"] = _data_name(self.data)
        settings = reader.merge_settings(reader.to_plain(setup.recipe), reader.merge_settings(self.settings, new))
        if ("steps" in new) != ("minutes" in new):
            settings["minutes" if "steps" in new else "steps"] = None
        recipe = reader.read(Recipe, settings, where="recipe")
        changed = [path for path in changed_settings(setup.recipe, recipe) if path not in _RESUMABLE]
        if changed:
            names = ", ".join(changed)
            raise InvalidInput(f"{folder} was started with another {names}.", hint="Leave it out, or start a new run.")
        setup = replace(setup, recipe=recipe)
        corpus = open_training_data(self.kind, self.data if self.data is not None else recipe.data, recipe.data_options)
        pretrained = None if recipe.init_from is None else load(recipe.init_from, device="cpu")
        spec = _make_spec(folder, setup, corpus, pretrained, device, progress)
        return spec.with_warning(environment_changes(folder))

    def join_run(self, folder: Path, device: str) -> "TrainSpec":
        """Join the run that the main process has just started or resumed."""
        given, settings = ({k: v for k, v in d.items() if k in _RESUMABLE} for d in (self.given, self.settings))
        return _TrainRequest(self.kind, self.data, given, settings).resume(folder, device, None)

    def worker_command(self, device: str) -> list[str]:
        """Return the command line of another process of this run; it reads all other settings from the run's folder."""
        settings = {**self.settings, **self.given}
        budget = [word for key in ("steps", "minutes") if key in settings for word in (f"--{key}", str(settings[key]))]
        changed = [key for key in ("parallel", "patience") if key in settings]
        texts = ["null" if settings[key] is None else settings[key] for key in changed]
        changes = [word for key, text in zip(changed, texts, strict=True) for word in ("--set", f"{key}={text}")]
        return [sys.executable, "-m", "peasy", "train", self.kind, "--quiet", "--device", device, *budget, *changes]


def _make_spec(
    folder: Path, setup: "RunSetup", corpus: Corpus, pretrained: LoadedModel | None, device: str,
    progress: OnProgress | None,
) -> "TrainSpec":  # fmt: skip
    from peasy.training.data_loader import SpecialTokens, make_data_loader
    from peasy.training.loop import TrainSpec
    from peasy.training.setup import build_model

    recipe, tokenizer, target_tokenizer = setup.recipe, setup.tokenizer, setup.target_tokenizer
    shard_folder = data_dir() / "shards" / shards_fingerprint(corpus, tokenizer, target_tokenizer)[:24]
    shards = prepare_shards(corpus, tokenizer, shard_folder, progress, target_tokenizer)
    if corpus.problems:
        where, why = corpus.problems.listed[0]
        unused = pluralize(corpus.problems.count, "line")
        warnings.warn(f"{unused} could not be used; the first: {where}: {why}.", stacklevel=2)
    model = build_model(setup, pretrained).to(device)
    assert recipe.objective is not None, "set when the run was started"
    special, frame = model.config.special_tokens, SpecialTokens.from_tokenizer(tokenizer)
    unit = recipe.sample_unit
    loader = make_data_loader(shards, recipe.objective, special, frame, seed=recipe.seed, sample_unit=unit)
    examples = list(itertools.islice(corpus.documents("valid"), 2)) if "valid" in corpus.splits else []
    return TrainSpec(
        folder, recipe, model, recipe.objective, loader, tokenizer,
        _make_sampler(setup, examples), _tracked_sentence(setup, model, examples), target_tokenizer=target_tokenizer,
        warning=f"Not read: {skipped}." if (skipped := getattr(corpus, "skipped", "")) else None,
    )  # fmt: skip


def _run_folder(run: str | Path | None) -> Path:
    """Resolve a run name to its folder in peasy's data directory or in ./runs; a path is used as it is."""
    if run is None:
        return run_path(random_run_name(find_runs()))
    if isinstance(run, Path) or any(separator in run for separator in "/\\") or run.startswith((".", "~")):
        return Path(run).expanduser()
    return find_runs().get(run) or run_path(run)


def _data_name(data: DataSource) -> str:
    if isinstance(data, Corpus):
        return data.name
    if isinstance(data, str) and data.partition(":")[0] in BUILT_IN:
        return data
    files = [data] if isinstance(data, Path) or (isinstance(data, str) and Path(data).exists()) else data
    paths = files.split(",") if isinstance(files, str) else files
    return ",".join(str(Path(path).absolute()) for path in paths)  # absolute: a run may be resumed from another folder


def _make_sampler(setup: "RunSetup", examples: Sequence[Sample]) -> "SampleFn | None":
    """Return a function that samples from the model: continues prompts, or translates the first validation sources."""
    from peasy.generation.decode import generate

    recipe, tokenizer = setup.recipe, setup.tokenizer
    translates = recipe.model_kind in ("translator", "rnn-translator")
    prompts = recipe.prompts or tuple(_make_prompt(sample, tokenizer) for sample in examples)
    is_chat = not recipe.prompts and any(isinstance(sample, Conversation) for sample in examples)
    ids = [tokenizer.encode_ids(prompt, add_special_tokens=not is_chat) for prompt in prompts]
    output_tokenizer = setup.target_tokenizer or tokenizer
    if recipe.model_kind in ("encoder", "words") or not all(ids) or not ids:
        return None
    sampling = SamplingParams(max_tokens=48, temperature=0.0 if translates else 0.8, seed=recipe.seed)

    def sample(model: "Model", step: int) -> Sampled:
        prompt_ids, source_ids = (None, ids) if translates else (ids, None)
        sequences = generate(model, prompt_ids, sampling, source=source_ids)
        starts = [()] * len(ids) if translates else ids
        texts = map(output_tokenizer.decode_continuation, starts, sequences)
        return Sampled(step, prompts, tuple(texts), tuple(map(tuple, sequences)))

    return sample


def _make_prompt(sample: Sample, tokenizer: "Tokenizer") -> str:
    if isinstance(sample, Conversation):
        asked = itertools.takewhile(lambda message: message[0] != "assistant", sample.messages)
        return apply_chat_template(tokenizer, [{"role": role, "content": text} for role, text in asked])
    text = sample_texts(sample)[0]
    return text if isinstance(sample, TextPair) else " ".join(text.split(" ")[:3])[:60]


def _tracked_sentence(setup: "RunSetup", model: "Model", examples: Sequence[Sample]) -> "TrackedSentence | None":
    """Choose the sentence of the attention snapshots: the recipe's, else the first validation sentence."""
    from peasy.training.attention_snapshots import TrackedSentence

    recipe, tokenizer = setup.recipe, setup.tokenizer
    first = examples[0] if examples else recipe.tracked_sentence
    if recipe.model_kind not in ("gpt", "encoder", "translator", "rnn-translator") or first is None:
        return None
    if not model.is_encoder_decoder:
        text = recipe.tracked_sentence or sample_texts(first)[0]
        encoding = tokenizer.encode(text)
        return TrackedSentence(encoding.ids[:32], encoding.pieces[:32]) if encoding.ids else None
    if not isinstance(first, TextPair):
        return None
    target_tokenizer = setup.target_tokenizer or tokenizer
    source = tokenizer.encode(recipe.tracked_sentence or first.source)
    target = target_tokenizer.encode(first.target, add_special_tokens=False)
    start = model.config.special_tokens.decoder_start
    ids, pieces = ((), ()) if start is None else ((start,), (target_tokenizer.piece(start),))
    inputs = (*ids, *target.ids[:31]), (*pieces, *target.pieces[:31])
    return TrackedSentence(*inputs, source.ids[:32], source.pieces[:32])
