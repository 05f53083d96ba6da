"""Model registry: models by name, each loaded once with its engine; least recently used ones are evicted.

A client can only name what is here already: a built-in model, a run, a model in the hub's cache, or one given on the
command line. Nothing a client sends is ever opened as a path.
"""

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from peasy.checkpoint import paths
from peasy.checkpoint.hub import list_cached
from peasy.checkpoint.loaded_model import open_model
from peasy.checkpoint.paths import ResolvedModel, built_in_models, find_runs, resolve_model
from peasy.commands.generate import pack_weights
from peasy.commands.load import LoadedModel, choose_device
from peasy.errors import InvalidInput, NotFound, ResourceUnavailable, did_you_mean
from peasy.generation.engine import Engine
from peasy.generation.engine_thread import EngineThread
from peasy.generation.limits import EngineLimits

_DEFAULT_MEMORY_BYTES = 8 * 2**30
"""Default limit in bytes for the weights of all loaded models together."""


@dataclass(eq=False)
class LoadedEntry:
    """A loaded model, with its engine once it was requested.

    `num_users` counts the requests that use it now; `version` is the `run_version` of the name when it was loaded.
    `encodes_elsewhere`: its tokenizer runs in another process, so that encoding a text may wait.
    """

    loaded: LoadedModel
    folder: Path
    weight_bytes: int
    version: tuple[int, ...]
    encodes_elsewhere: bool = False
    engine_thread: EngineThread | None = None
    num_users: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def in_use(self) -> bool:
        """True while a request or the engine uses the model."""
        return self.num_users > 0 or (self.engine_thread is not None and not self.engine_thread.engine.idle)

    def close(self) -> None:
        """Stop the engine."""
        if self.engine_thread is not None:
            self.engine_thread.close()


def _run_of(name: str) -> str:
    """Return the run of a checkpoint's name, such as my-run@200."""
    return name.partition("@")[0]


class ModelRegistry:
    """LRU registry of models: the given ones, and unless `only_given`, all models on this machine.

    `weights` is the weight format of generating models; `limits` bound each engine, `memory_bytes` all weights.

    >>> ModelRegistry(["no-such-model"])
    Traceback (most recent call last):
    peasy.errors.NotFound: No model "no-such-model".
    """

    def __init__(
        self,
        models: Sequence[str | Path | LoadedModel] = (),
        *,
        memory_bytes: int = _DEFAULT_MEMORY_BYTES,
        limits: EngineLimits | None = None,
        weights: str = "auto",
        device: str = "auto",
        only_given: bool | None = None,
    ) -> None:
        self.only_given = bool(models) if only_given is None else only_given
        self.memory_bytes, self.limits, self.weights, self.device = memory_bytes, limits, weights, device
        self._registered: dict[str, Callable[[], ResolvedModel | LoadedModel]] = {}
        for model in models:
            self._register(model)
        self._loaded: OrderedDict[str, LoadedEntry] = OrderedDict()
        self.created = time.time()
        self._replaced: list[LoadedEntry] = []
        self._lock, self._load_locks = threading.RLock(), dict[str, threading.Lock]()

    def _register(self, model: str | Path | LoadedModel) -> None:
        if isinstance(model, LoadedModel):
            self._registered[model.name] = lambda: model
            return
        resolved = resolve_model(model)
        name = Path(resolved.name).name if resolved.kind == "path" else resolved.name
        self._registered[name] = lambda: resolve_model(model)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all models that a request may use."""
        on_disk = () if self.only_given else (*built_in_models(), *find_runs(), *list_cached())
        return tuple(dict.fromkeys((*self._registered, *on_disk)))

    @property
    def loaded(self) -> dict[str, LoadedEntry]:
        """Loaded models by name (a copy)."""
        with self._lock:
            return dict(self._loaded)

    @contextmanager
    def use(self, name: str) -> Iterator[LoadedModel]:
        """Yield the model of that name; it is not evicted while in use."""
        with self._in_use(name) as entry:
            yield entry.loaded

    def check_name(self, name: str) -> str:
        """Return the name, or raise with the nearest one as a hint."""
        if name not in (names := self.names) and (self.only_given or _run_of(name) not in find_runs()):
            hint = did_you_mean(name, names)
            hint = hint or (f"Available: {', '.join(names[:12])}." if names else "There are no models yet.")
            raise NotFound(f'No model "{name[:100]}".', hint=hint)
        return name

    def name_or_only(self, name: str | None) -> str:
        """Return the name; without one, that of the only model."""
        if name is None and len(self.names) != 1:
            raise InvalidInput("model: several models are served.", hint=f"Available: {', '.join(self.names[:12])}.")
        return name or self.names[0]

    @contextmanager
    def engine(self, name: str) -> Iterator[tuple[LoadedModel, Engine]]:
        """Yield the model and its engine, whose thread is started on first use."""
        with self._in_use(name) as entry:
            with entry.lock:
                if entry.engine_thread is None:
                    loaded = entry.loaded
                    if loaded.kind in ("encoder", "words"):
                        message = f"{loaded.name} ({loaded.kind}) cannot generate text."
                        raise InvalidInput(message, hint="Use /v1/embeddings for vectors.")
                    model, _ = pack_weights(loaded, self.weights)
                    entry.engine_thread = EngineThread(Engine(model, loaded.output_tokenizer(), self.limits))
            yield entry.loaded, entry.engine_thread.engine

    def preload(self) -> None:
        """Load all given models now and start the engines of those that generate."""
        for name in self._registered:
            with contextlib.suppress(InvalidInput), self.engine(name):  # an encoder is loaded, but has no engine
                pass

    def is_ready(self, name: str) -> bool:
        """True if a request for this model need not wait: for its newest checkpoint, its engine, or another process."""
        with self._lock:
            entry = self._loaded.get(name)
            if entry is None or entry.engine_thread is None or entry.version != self._version(name):
                return False
            return not entry.encodes_elsewhere

    def cancel_all(self) -> None:
        """Accept no more requests and cancel all running ones; each gets a final event."""
        for entry in self.loaded.values():
            if entry.engine_thread is not None:
                entry.engine_thread.close(timeout=0)

    def close(self) -> None:
        """Stop all engines and release all models."""
        for entry in (*self.loaded.values(), *self._replaced):
            entry.close()
        with self._lock:
            self._loaded.clear()

    # Loading and eviction.

    @contextmanager
    def _in_use(self, name: str) -> Iterator[LoadedEntry]:
        entry = self._acquire(name)
        try:
            yield entry
        finally:
            with self._lock:
                entry.num_users -= 1

    def _acquire(self, name: str) -> LoadedEntry:
        """Return the loaded model; only a name that is new or has a new checkpoint is looked up on disk."""
        version = self._version(name)
        if (entry := self._use_loaded(name, version)) is not None:
            return entry
        self.check_name(name)
        with self._lock:
            load_lock = self._load_locks.setdefault(name, threading.Lock())
        with load_lock:  # one lock per name: a model is loaded once, and other models are not blocked
            run = None if name in self._registered else find_runs().get(name)
            newest = next(iter(paths.list_checkpoints(run)), None) if run is not None else None
            return self._use_loaded(name, version, newest) or self._mark_used(name, self._load(name, version))

    def _version(self, name: str) -> tuple[int, ...]:
        return () if name in self._registered else paths.run_version(_run_of(name))

    def _use_loaded(self, name: str, version: tuple[int, ...], newest: Path | None = None) -> LoadedEntry | None:
        """Return the loaded model if it is of this version, or from the newest checkpoint."""
        with self._lock:
            entry = self._loaded.get(name)
            if entry is None or (entry.version != version and entry.folder != newest):
                return None
            entry.version = version
            return self._mark_used(name, entry)

    def _mark_used(self, name: str, entry: LoadedEntry) -> LoadedEntry:
        """Count one more user; models that a newer checkpoint has replaced are closed once they have none."""
        with self._lock:
            previous = self._loaded.get(name)
            self._replaced += [previous] if previous is not None and previous is not entry else []
            self._loaded[name] = entry
            self._loaded.move_to_end(name)
            entry.num_users += 1
            unused = [replaced for replaced in self._replaced if not replaced.in_use]
            self._replaced = [replaced for replaced in self._replaced if replaced not in unused]
        for replaced in unused:
            replaced.close()
        return entry

    def _load(self, name: str, version: tuple[int, ...]) -> LoadedEntry:
        resolved = self._registered[name]() if name in self._registered else resolve_model(name, offline=True)
        if isinstance(resolved, LoadedModel):
            loaded, folder = resolved, Path(name)
        else:
            loaded, folder = LoadedModel(**vars(open_model(resolved)) | {"name": name}), resolved.folder
        if (device := choose_device(self.device)) != "cpu":
            loaded.model.to(device)
        size, tokenizer = loaded.model.weight_bytes(), loaded.tokenizer
        self._evict_for(size, name)
        return LoadedEntry(loaded, folder, size, version, tokenizer is not None and tokenizer.is_isolated)

    def _evict_for(self, size: int, name: str) -> None:
        """Evict least recently used models until the new one fits."""
        if size > self.memory_bytes:
            message = f"{name} needs {size:,} bytes; the limit is {self.memory_bytes:,}."
            raise ResourceUnavailable(message, hint="Raise it with --max-memory.")
        with self._lock:
            for other, entry in list(self._loaded.items()):
                if sum(loaded.weight_bytes for loaded in self._loaded.values()) + size <= self.memory_bytes:
                    return
                if not entry.in_use:
                    self._loaded.pop(other).close()
