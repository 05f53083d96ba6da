"""`train`: start or resume a training run from a model kind and data."""

import inspect
import itertools
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from peasy import config as reader
from peasy.checkpoint.home import home, place_for, runs
from peasy.commit import refuse_existing
from peasy.corpora import BUILT_IN, Corpus, Labelled, Pair, Unlabelled, fingerprint, open_corpus, prepare
from peasy.errors import InvalidInput, UsageError
from peasy.parts import need
from peasy.views.document import Document
from peasy.views.run import run_document
from peasy.workbench.load import LoadedModel, choose_device, load
from peasy.workbench.result import Result
from peasy.workbench.runs import Run, open_run

if TYPE_CHECKING:
    from peasy.training.event import Event, Sampled
    from peasy.training.loop import Task, Write
    from peasy.training.recipe import Recipe
    from peasy.training.setup import Origin, Setup
    from peasy.training.sink import Sink

Data = str | Path | Sequence[str | Path] | Corpus
Progress = Callable[[int, int], None]
P = ParamSpec("P")
R = TypeVar("R")

_MAY_CHANGE = ("steps", "minutes", "parallel")
"""Settings that may change when a run is resumed."""


@dataclass(frozen=True, repr=False, eq=False)
class TrainResult(Result):
    """A finished or interrupted training run. `model` is loaded from the newest checkpoint."""

    run: Run

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.run.folder

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.run.name

    @property
    def model(self) -> LoadedModel:
        """The trained model, loaded from its checkpoint."""
        return load(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Every line of `metrics.jsonl`."""
        return self.run.metrics()

    def document(self) -> Document:
        """Return recipe, state, loss curves and samples."""
        return run_document(self.run.facts())

    def data(self) -> dict[str, Any]:
        """Return the run as plain data."""
        return self.run.data()

    def __repr__(self) -> str:
        return f"TrainResult({self.name}: {self.run.facts().state})"


def training(
    kind: str,
    data: Data | None = None,
    *,
    preset: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    processes: int | None = None,
    run: str | Path | None = None,
    from_: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    sinks: Sequence["Sink | str"] = (),
    progress: Progress | None = None,
) -> Generator["Event", None, None]:
    """Yield the events of `train` as they happen. Closing the iterator stops and saves the run.

    `progress` is called with the number of characters tokenized so far, and their total.
    """
    need("torch")
    if processes is not None and processes > 1 and isinstance(data, Corpus):
        raise InvalidInput("A Corpus object cannot be shared with other processes.", hint="Give its name or files.")
    from peasy.training import parallel
    from peasy.training.crew import join, led

    given = {"preset": preset, "steps": steps, "minutes": minutes, "seed": seed, "origin": from_ and str(from_)}
    given = {key: value for key, value in given.items() if value is not None}
    request = _Asked(kind, data, given, dict(settings or {}))
    with join(processes, request.follower(device)) as group:
        folder, rank_device = Path(group.agree(str(_folder(run)))), group.device(choose_device(device))

        def start_main() -> "Task":
            if (folder / "recipe.json").is_file() and resume:
                return request.go_on(folder, rank_device, progress)
            refuse_run(folder, resume)
            return request.begin(folder, rank_device, progress)

        spec = led(group, start_main, lambda: request.follow(folder, rank_device))
        yield from parallel.train(replace(spec, sinks=tuple(sinks)), group)


def _asked_like(other: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Decorator: copy the signature of another function, so that parameters are declared once."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        returns = inspect.signature(function).return_annotation
        function.__signature__ = inspect.signature(other).replace(return_annotation=returns)  # type: ignore[attr-defined]
        return function

    return decorate


@_asked_like(training)
def train(kind: str, *args: Any, **options: Any) -> TrainResult:
    """Train a model: gpt, encoder, translator, rnn, cnn, rnn-translator, ngram or words.

    `data` is a built-in corpus or files; `preset` is tiny, small (default) or base; `minutes` or `steps` is the
    budget. `run` is a name or a folder; `resume` continues it. `from_` initializes the weights from another model.
    `settings` change the recipe. `processes` trains data-parallel on this machine. Ctrl-C saves first; the same call
    with `resume=True` continues.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = train("ngram", "copy", preset="tiny", steps=2, run=f"{folder}/pairs")
    >>> result.name
    'pairs'
    """
    from peasy.training.event import Started
    from peasy.training.stop import stoppable

    events = training(kind, *args, **options)
    folder = None
    with stoppable() as stop:
        for event in events:
            if isinstance(event, Started):
                folder = event.run
                if event.warning:
                    warnings.warn(event.warning, stacklevel=2)
            if stop.asked:
                events.close()
                break
    assert folder is not None
    if stop.signal == signal.SIGINT:
        raise KeyboardInterrupt(f"Saved. Continue with peasy.train({kind!r}, run={str(folder)!r}, resume=True)")
    if stop.signal == signal.SIGTERM:
        raise SystemExit(0)
    return TrainResult(open_run(folder))


def refuse_run(folder: Path, resume: bool) -> None:
    """Raise if a new run would overwrite something."""
    if (folder / "recipe.json").is_file() and not resume:
        raise InvalidInput(f"The run {folder} exists already.", hint="Continue with --resume, or choose another --run.")
    refuse_existing(folder)


@dataclass(frozen=True)
class _Asked:
    """Arguments of `train`: only those given explicitly, so that resuming does not change other settings."""

    kind: str
    corpus: Data | None
    given: dict[str, Any]
    settings: dict[str, Any]

    def begin(self, folder: Path, device: str, progress: Progress | None) -> "Task":
        """Start a new run."""
        from peasy.training.recipe import make_recipe, over
        from peasy.training.setup import set_up, write_run

        if self.corpus is None:
            raise UsageError("Training needs data.", hint="For example: --data stories. See all: peasy data")
        given = dict(self.given)
        corpus = _open(self.kind, self.corpus, self.settings.get("corpus", {}))
        settings = self.settings if self.kind == "ngram" else over(corpus.suggests, self.settings)
        recipe = make_recipe(self.kind, given.pop("preset", "small"), settings, data=_said(self.corpus), **given)
        origin = _origin(recipe)
        setup = set_up(recipe, corpus, origin, device)
        task = _task(folder, setup, corpus, origin, device, progress)
        write_run(folder, setup, corpus)  # last, so that a failed start leaves no folder behind
        return task

    def go_on(self, folder: Path, device: str, progress: Progress | None) -> "Task":
        """Resume the run in this folder; only its budget and parallelism may change."""
        from peasy.training.recipe import Recipe, differing, over
        from peasy.training.setup import changed_ground, read_run

        setup = read_run(folder)
        new: dict[str, Any] = {"trains": self.kind} | self.given
        if self.corpus is not None:
            new["data"] = _said(self.corpus)
        settings = over(reader.plain(setup.recipe), over(self.settings, new))
        if ("steps" in new) != ("minutes" in new):
            settings["minutes" if "steps" in new else "steps"] = None
        recipe = reader.read(Recipe, settings, where="recipe")
        changed = [path for path in differing(setup.recipe, recipe) if path not in _MAY_CHANGE]
        if changed:
            names = ", ".join(changed)
            raise InvalidInput(f"{folder} was started with another {names}.", hint="Leave it out, or start a new run.")
        setup = replace(setup, recipe=recipe)
        corpus = _open(self.kind, self.corpus if self.corpus is not None else recipe.data, recipe.corpus)
        task = _task(folder, setup, corpus, _origin(recipe), device, progress)
        return replace(task, warning=changed_ground(folder))

    def follow(self, folder: Path, device: str) -> "Task":
        """Join the run that the main process has just started or resumed."""
        given, settings = ({k: v for k, v in d.items() if k in _MAY_CHANGE} for d in (self.given, self.settings))
        return _Asked(self.kind, self.corpus, given, settings).go_on(folder, device, None)

    def follower(self, device: str) -> list[str]:
        """Return the command line of another process of this run; it reads all other settings from the run's folder."""
        settings = {**self.settings, **self.given}
        budget = [word for key in ("steps", "minutes") if key in settings for word in (f"--{key}", str(settings[key]))]
        parallel = ["--set", f"parallel={settings['parallel']}"] if "parallel" in settings else []
        return [sys.executable, "-m", "peasy", "train", self.kind, "--quiet", "--device", device, *budget, *parallel]


def _task(
    folder: Path, setup: "Setup", corpus: Corpus, origin: "Origin | None", device: str, progress: Progress | None
) -> "Task":
    from peasy.training.feed import Frame, choose_feed
    from peasy.training.loop import Task
    from peasy.training.setup import build_model

    recipe, tokenizer, answers = setup.recipe, setup.tokenizer, setup.answers
    shard_folder = home() / "shards" / fingerprint(corpus, tokenizer, answers)[:24]
    shards = prepare(corpus, tokenizer, shard_folder, progress, answers)
    if corpus.problems:
        where, why = corpus.problems.named[0]
        warnings.warn(f"{corpus.problems.count} lines could not be used; the first: {where}: {why}.", stacklevel=2)
    model = build_model(setup, origin).to(device)
    assert recipe.objective is not None, "set when the run was started"
    special, frame = model.config.special, Frame.of(tokenizer)
    loader = choose_feed(shards, recipe.objective, special, frame, seed=recipe.seed, rows=recipe.rows)
    examples = list(itertools.islice(corpus.documents("valid"), 2)) if "valid" in corpus.splits else []
    return Task(
        folder, recipe, model, recipe.objective, loader, tokenizer,
        _writer(setup, examples), _sentence(setup, model, examples), answers=answers,
    )  # fmt: skip


def _open(kind: str, data: Data, options: Mapping[str, Any]) -> Corpus:
    """Open the data; labels are dropped unless an encoder is trained."""
    corpus = open_corpus(data, **options)
    return Unlabelled(corpus) if corpus.kind == "labelled" and kind != "encoder" else corpus


def _folder(run: str | Path | None) -> Path:
    """Resolve a run name to its folder in peasy's data directory or in ./runs; a path is used as it is."""
    if run is None:
        from peasy.training.name import new_name

        return place_for(new_name(runs()))
    if isinstance(run, Path) or any(separator in run for separator in "/\\") or run.startswith((".", "~")):
        return Path(run).expanduser()
    return runs().get(run) or place_for(run)


def _said(data: Data) -> str:
    if isinstance(data, Corpus):
        return data.name
    if isinstance(data, str) and data.partition(":")[0] in BUILT_IN:
        return data
    files = [data] if isinstance(data, Path) or (isinstance(data, str) and Path(data).exists()) else data
    paths = files.split(",") if isinstance(files, str) else files
    return ",".join(str(Path(path).absolute()) for path in paths)  # absolute: a run may be resumed from another folder


def _origin(recipe: "Recipe") -> "Origin | None":
    from peasy.training.setup import Origin

    if recipe.origin is None:
        return None
    loaded = load(recipe.origin, device="cpu")
    return Origin(recipe.origin, loaded.model, loaded.need_tokenizer(), loaded.target_tokenizer)


def _writer(setup: "Setup", shown: Sequence[Any]) -> "Write | None":
    """Return a function that samples from the model: continues prompts, or translates the first validation sources."""
    from peasy.generation.decode import Sampling, generate
    from peasy.training.event import Sampled

    recipe, tokenizer = setup.recipe, setup.tokenizer
    translates = recipe.trains in ("translator", "rnn-translator")
    prompts = recipe.prompts or tuple(_prompt(sample) for sample in shown)
    ids = [list(tokenizer.encode(prompt).ids) for prompt in prompts]
    if recipe.trains in ("encoder", "words") or not all(ids) or not ids:
        return None
    sampling = Sampling(max_tokens=48, temperature=0.0 if translates else 0.8, seed=recipe.seed)

    def sample(model: Any, step: int) -> "Sampled":
        inputs: dict[str, Any] = {"source": ids} if translates else {"prompts": ids}
        sequences = generate(model, sampling=sampling, **inputs)
        texts = map((setup.answers or tokenizer).decode, sequences)
        return Sampled(step, prompts, tuple(texts), tuple(map(tuple, sequences)))

    return sample


def _prompt(sample: Any) -> str:
    if isinstance(sample, Pair):
        return sample.source
    words = (sample.text if isinstance(sample, Labelled) else sample).split(" ")
    return " ".join(words[:3])[:60]


def _sentence(setup: "Setup", model: Any, shown: Sequence[Any]) -> Any:
    """Choose the sentence of the attention snapshots: the recipe's, else the first validation sentence."""
    from peasy.training.attention import Sentence

    recipe, tokenizer = setup.recipe, setup.tokenizer
    if recipe.trains not in ("gpt", "encoder", "translator", "rnn-translator") or not (recipe.sentence or shown):
        return None
    first = shown[0] if shown else recipe.sentence
    if not model.reads_source:
        text = recipe.sentence or (first.text if isinstance(first, Labelled) else _source(first))
        encoding = tokenizer.encode(text)
        return Sentence(encoding.ids[:32], encoding.pieces[:32]) if encoding.ids else None
    if not isinstance(first, Pair):
        return None
    target_tokenizer = setup.answers or tokenizer
    source = tokenizer.encode(recipe.sentence or first.source)
    target = target_tokenizer.encode(first.target, special=False)
    start = model.config.special.start
    ids, pieces = ((), ()) if start is None else ((start,), (target_tokenizer.piece(start),))
    return Sentence((*ids, *target.ids[:31]), (*pieces, *target.pieces[:31]), source.ids[:32], source.pieces[:32])


def _source(sample: Any) -> str:
    return sample.source if isinstance(sample, Pair) else str(sample)
