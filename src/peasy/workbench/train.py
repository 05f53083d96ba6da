"""`train`: from a kind and some data to a run that can be loaded, looked at and continued."""

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
"""What a run that goes on may be told anew."""


@dataclass(frozen=True, repr=False, eq=False)
class TrainResult(Result):
    """A run that has ended, or was stopped and can go on. `model` is the newest checkpoint, ready to be asked."""

    run: Run

    @property
    def folder(self) -> Path:
        """Where the run lies."""
        return self.run.folder

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.run.name

    @property
    def model(self) -> LoadedModel:
        """The trained model, read from its checkpoint."""
        return load(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Every line of `metrics.jsonl`."""
        return self.run.metrics()

    def document(self) -> Document:
        """What was trained, how far it came, its curves and what it writes."""
        return run_document(self.run.facts())

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
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
    """The events of `train` as they happen. Closing the iterator stops the run, and stopping saves it.

    `progress` hears how many characters of the data are cut into tokens, and of how many.
    """
    need("torch")
    if processes is not None and processes > 1 and isinstance(data, Corpus):
        raise InvalidInput("Other processes cannot see a corpus that was opened here.", hint="Give its name or files.")
    from peasy.training import parallel
    from peasy.training.crew import join, led

    given = {"preset": preset, "steps": steps, "minutes": minutes, "seed": seed, "origin": from_ and str(from_)}
    asked = _Asked(kind, data, {key: value for key, value in given.items() if value is not None}, dict(settings or {}))
    with join(processes, asked.follower(device)) as crew:
        folder, where = Path(crew.agree(str(_folder(run)))), crew.device(choose_device(device))

        def lead() -> "Task":
            if (folder / "recipe.json").is_file() and resume:
                return asked.go_on(folder, where, progress)
            refuse_run(folder, resume)
            return asked.begin(folder, where, progress)

        task = led(crew, lead, lambda: asked.follow(folder, where))
        yield from parallel.train(replace(task, sinks=tuple(sinks)), crew)


def _asked_like(other: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """The parameters of another function, so that they are written down once."""

    def give(function: Callable[..., R]) -> Callable[P, R]:
        found, told = inspect.signature(other), inspect.signature(function)
        function.__signature__ = found.replace(return_annotation=told.return_annotation)  # type: ignore[attr-defined]
        return function

    return give


@_asked_like(training)
def train(kind: str, *given: Any, **asked: Any) -> TrainResult:
    """Train a model: gpt, encoder, translator, rnn, cnn, rnn-translator, ngram or words.

    `data` is a built-in corpus or files; `preset` tiny, small (if none is named) or base; `minutes` or `steps` the
    budget. `run` is a name or a folder; `resume` goes on where it stands. `from_` goes on from another model's weights.
    `settings` change the recipe. `processes` share the work on this machine. Ctrl-C saves first; the same call with
    `resume=True` goes on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = train("ngram", "copy", preset="tiny", steps=2, run=f"{folder}/pairs")
    >>> found.name
    'pairs'
    """
    from peasy.training.event import Started
    from peasy.training.stop import stoppable

    events = training(kind, *given, **asked)
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
        raise KeyboardInterrupt(f"Saved. Go on with peasy.train({kind!r}, run={str(folder)!r}, resume=True)")
    if stop.signal == signal.SIGTERM:
        raise SystemExit(0)
    return TrainResult(open_run(folder))


def refuse_run(folder: Path, resume: bool) -> None:
    """An error where a new run would stand in the place of something else."""
    if (folder / "recipe.json").is_file() and not resume:
        raise InvalidInput(f"The run {folder} exists already.", hint="Go on with --resume, or choose another --run.")
    refuse_existing(folder)


@dataclass(frozen=True)
class _Asked:
    """What a person asked for: only what was said, so that a run that goes on is not asked to change."""

    kind: str
    corpus: Data | None
    given: dict[str, Any]
    settings: dict[str, Any]

    def begin(self, folder: Path, device: str, progress: Progress | None) -> "Task":
        """A new run."""
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
        write_run(folder, setup, corpus)  # last: what cannot be trained leaves no folder behind
        return task

    def go_on(self, folder: Path, device: str, progress: Progress | None) -> "Task":
        """The run in this folder, as it was begun; only its budget and how it is shared may change."""
        from peasy.training.recipe import Recipe, differing, over
        from peasy.training.setup import changed_ground, read_run

        setup = read_run(folder)
        new: dict[str, Any] = {"trains": self.kind} | self.given
        if self.corpus is not None:
            new["data"] = _said(self.corpus)
        plain = over(reader.plain(setup.recipe), over(self.settings, new))
        if ("steps" in new) != ("minutes" in new):
            plain["minutes" if "steps" in new else "steps"] = None
        recipe = reader.read(Recipe, plain, where="recipe")
        changed = [path for path in differing(setup.recipe, recipe) if path not in _MAY_CHANGE]
        if changed:
            told = ", ".join(changed)
            raise InvalidInput(f"{folder} was begun with another {told}.", hint="Leave it out, or begin a new run.")
        setup = replace(setup, recipe=recipe)
        corpus = _open(self.kind, self.corpus if self.corpus is not None else recipe.data, recipe.corpus)
        task = _task(folder, setup, corpus, _origin(recipe), device, progress)
        return replace(task, warning=changed_ground(folder))

    def follow(self, folder: Path, device: str) -> "Task":
        """The run that another process has just begun, or goes on with."""
        given, settings = ({k: v for k, v in each.items() if k in _MAY_CHANGE} for each in (self.given, self.settings))
        return _Asked(self.kind, self.corpus, given, settings).go_on(folder, device, None)

    def follower(self, device: str) -> list[str]:
        """The words that start another process of this run: it reads from the run's folder what is not said here."""
        said = {**self.settings, **self.given}
        budget = [word for key in ("steps", "minutes") if key in said for word in (f"--{key}", str(said[key]))]
        way = ["--set", f"parallel={said['parallel']}"] if "parallel" in said else []
        return [sys.executable, "-m", "peasy", "train", self.kind, "--quiet", "--device", device, *budget, *way]


def _task(
    folder: Path, setup: "Setup", corpus: Corpus, origin: "Origin | None", device: str, progress: Progress | None
) -> "Task":
    from peasy.training.feed import Frame, choose_feed
    from peasy.training.loop import Task
    from peasy.training.setup import build_model

    recipe, tokenizer, answers = setup.recipe, setup.tokenizer, setup.answers
    place = home() / "shards" / fingerprint(corpus, tokenizer, answers)[:24]
    shards = prepare(corpus, tokenizer, place, progress, answers)
    if corpus.problems:
        where, why = corpus.problems.named[0]
        warnings.warn(f"{corpus.problems.count} lines could not be used, the first: {where}: {why}.", stacklevel=2)
    model = build_model(setup, origin).to(device)
    assert recipe.objective is not None, "settled when the run was begun"
    special, frame = model.config.special, Frame.of(tokenizer)
    feed = choose_feed(shards, recipe.objective, special, frame, seed=recipe.seed, rows=recipe.rows)
    shown = list(itertools.islice(corpus.documents("valid"), 2)) if "valid" in corpus.splits else []
    return Task(
        folder, recipe, model, recipe.objective, feed, tokenizer,
        _writer(setup, shown), _sentence(setup, model, shown), answers=answers,
    )  # fmt: skip


def _open(kind: str, data: Data, options: Mapping[str, Any]) -> Corpus:
    """The data as this kind reads them: only an encoder has a use for labels."""
    corpus = open_corpus(data, **options)
    return Unlabelled(corpus) if corpus.kind == "labelled" and kind != "encoder" else corpus


def _folder(run: str | Path | None) -> Path:
    """A run by name lies at home, or in `runs` here where it already is; a path is a path."""
    if run is None:
        from peasy.training.name import new_name

        return place_for(new_name(runs()))
    if isinstance(run, Path) or any(mark in run for mark in "/\\") or run.startswith((".", "~")):
        return Path(run).expanduser()
    return runs().get(run) or place_for(run)


def _said(data: Data) -> str:
    if isinstance(data, Corpus):
        return data.name
    if isinstance(data, str) and data.partition(":")[0] in BUILT_IN:
        return data
    given = [data] if isinstance(data, Path) or (isinstance(data, str) and Path(data).exists()) else data
    parts = given.split(",") if isinstance(given, str) else given
    return ",".join(str(Path(part).absolute()) for part in parts)  # a run may go on from another folder


def _origin(recipe: "Recipe") -> "Origin | None":
    from peasy.training.setup import Origin

    if recipe.origin is None:
        return None
    loaded = load(recipe.origin, device="cpu")
    return Origin(recipe.origin, loaded.model, loaded.need_tokenizer(), loaded.target_tokenizer)


def _writer(setup: "Setup", shown: Sequence[Any]) -> "Write | None":
    """Lets the model write on from the prompts, or answer the first held-out sources."""
    from peasy.generation.decode import Sampling, generate
    from peasy.training.event import Sampled

    recipe, tokenizer = setup.recipe, setup.tokenizer
    answers = recipe.trains in ("translator", "rnn-translator")
    prompts = recipe.prompts or tuple(_prompt(each) for each in shown)
    ids = [list(tokenizer.encode(prompt).ids) for prompt in prompts]
    if recipe.trains in ("encoder", "words") or not all(ids) or not ids:
        return None
    sampling = Sampling(max_tokens=48, temperature=0.0 if answers else 0.8, seed=recipe.seed)

    def write(model: Any, step: int) -> "Sampled":
        how: dict[str, Any] = {"source": ids} if answers else {"prompts": ids}
        found = generate(model, sampling=sampling, **how)
        texts = map((setup.answers or tokenizer).decode, found)
        return Sampled(step, prompts, tuple(texts), tuple(map(tuple, found)))

    return write


def _prompt(sample: Any) -> str:
    if isinstance(sample, Pair):
        return sample.source
    words = (sample.text if isinstance(sample, Labelled) else sample).split(" ")
    return " ".join(words[:3])[:60]


def _sentence(setup: "Setup", model: Any, shown: Sequence[Any]) -> Any:
    """What is watched: the recipe's sentence, else the first held-out one."""
    from peasy.training.attention import Sentence

    recipe, tokenizer = setup.recipe, setup.tokenizer
    if recipe.trains not in ("gpt", "encoder", "translator", "rnn-translator") or not (recipe.sentence or shown):
        return None
    first = shown[0] if shown else recipe.sentence
    if not model.reads_source:
        text = recipe.sentence or (first.text if isinstance(first, Labelled) else _source(first))
        found = tokenizer.encode(text)
        return Sentence(found.ids[:32], found.pieces[:32]) if found.ids else None
    if not isinstance(first, Pair):
        return None
    answers = setup.answers or tokenizer
    source, target = tokenizer.encode(recipe.sentence or first.source), answers.encode(first.target, special=False)
    start = model.config.special.start
    ids, pieces = ((), ()) if start is None else ((start,), (answers.piece(start),))
    return Sentence((*ids, *target.ids[:31]), (*pieces, *target.pieces[:31]), source.ids[:32], source.pieces[:32])


def _source(sample: Any) -> str:
    return sample.source if isinstance(sample, Pair) else str(sample)
