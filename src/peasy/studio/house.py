"""Model registry: models by name, loaded once, evicted least recently used first.

A client can only name what is here already: a built-in model, a run, a model in the hub's cache, or one given on the
command line. Nothing a client sends is ever opened as a path.
"""

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from peasy.checkpoint.home import checkpoints, runs
from peasy.checkpoint.hub import all_cached
from peasy.checkpoint.resolve import Found, built_in, resolve
from peasy.errors import InvalidInput, NoRoom, NotFound, did_you_mean
from peasy.workbench.generate import pack_weights
from peasy.workbench.load import LoadedModel, choose_device, open_found

if TYPE_CHECKING:
    from peasy.generation.limit import Limits
    from peasy.generation.runner import Runner

MEMORY = 8 * 2**30
"""Default limit in bytes for the weights of all loaded models together."""


@dataclass(eq=False)
class Kept:
    """A loaded model, with its engine once it was requested; `users` counts the requests that use it now."""

    loaded: LoadedModel
    folder: Path
    bytes: int
    runner: "Runner | None" = None
    users: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def busy(self) -> bool:
        """True while a request or the engine uses the model."""
        return self.users > 0 or (self.runner is not None and not self.runner.engine.idle)

    def close(self) -> None:
        """Stop the engine."""
        if self.runner is not None:
            self.runner.close()


class House:
    """LRU registry of models: the given ones, and unless `only`, all models on this machine.

    `weights` is the weight format of generating models; `limits` bound each engine, `memory` the bytes of all weights.

    >>> House(["no-such-model"])
    Traceback (most recent call last):
    peasy.errors.NotFound: No model "no-such-model".
    """

    def __init__(
        self,
        models: Sequence[str | Path | LoadedModel] = (),
        *,
        memory: int = MEMORY,
        limits: "Limits | None" = None,
        weights: str = "auto",
        device: str = "auto",
        only: bool | None = None,
    ) -> None:
        self.only = bool(models) if only is None else only
        self.memory, self.limits, self.weights, self.device = memory, limits, weights, device
        self._given: dict[str, Callable[[], Found | LoadedModel]] = {}
        for model in models:
            self._give(model)
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self.opened = time.time()
        self._old: list[Kept] = []
        self._lock, self._loading = threading.RLock(), dict[str, threading.Lock]()

    def _give(self, model: str | Path | LoadedModel) -> None:
        if isinstance(model, LoadedModel):
            self._given[model.name] = lambda: model
            return
        resolved = resolve(model)
        name = Path(resolved.name).name if resolved.kind == "path" else resolved.name
        self._given[name] = lambda: resolve(model)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all models that a request may use."""
        on_disk = () if self.only else (*built_in(), *runs(), *all_cached())
        return tuple(dict.fromkeys((*self._given, *on_disk)))

    @property
    def kept(self) -> dict[str, Kept]:
        """Loaded models by name (a copy)."""
        with self._lock:
            return dict(self._kept)

    @contextmanager
    def use(self, name: str) -> Iterator[LoadedModel]:
        """Yield the model of that name; it is not evicted while in use."""
        with self._used(name) as entry:
            yield entry.loaded

    def check(self, name: str) -> str:
        """Return the name, or raise with the nearest one as a hint."""
        if name not in (names := self.names):
            hint = did_you_mean(name, names)
            hint = hint or (f"Available: {', '.join(names[:12])}." if names else "There are no models yet.")
            raise NotFound(f'No model "{name[:100]}".', hint=hint)
        return name

    @contextmanager
    def engine(self, name: str) -> Iterator["tuple[LoadedModel, Runner]"]:
        """Yield the model and its engine thread, which is started on first use."""
        with self._used(name) as entry:
            yield entry.loaded, self._runner(entry)

    def warm(self) -> None:
        """Load all given models now and start the engines of those that generate."""
        for name in self._given:
            with contextlib.suppress(InvalidInput), self.engine(name):  # an encoder is loaded, but has no engine
                pass

    def ready(self, name: str) -> bool:
        """True if this model is loaded and its engine running."""
        entry = self.kept.get(name)
        return entry is not None and entry.runner is not None

    def cancel(self) -> None:
        """Accept no more requests and cancel all running ones; each gets a final event."""
        for entry in self.kept.values():
            if entry.runner is not None:
                entry.runner.close(timeout=0)

    def close(self) -> None:
        """Stop all engines and release all models."""
        for entry in (*self.kept.values(), *self._old):
            entry.close()
        with self._lock:
            self._kept.clear()

    # Loading and eviction.

    @contextmanager
    def _used(self, name: str) -> Iterator[Kept]:
        entry = self._take(name)
        try:
            yield entry
        finally:
            with self._lock:
                entry.users -= 1

    def _take(self, name: str) -> Kept:
        resolved = self._find(self.check(name))
        with self._lock:
            lock = self._loading.setdefault(name, threading.Lock())
        with lock:  # one lock per name: a model is loaded once, and other models are not blocked
            with self._lock:
                entry = self._kept.get(name)
                if entry is not None and (isinstance(resolved, LoadedModel) or entry.folder == resolved.folder):
                    return self._mark(name, entry)
            return self._mark(name, self._load(name, resolved))

    def _mark(self, name: str, kept: Kept) -> Kept:
        with self._lock:
            previous = self._kept.get(name)
            self._old += [previous] if previous is not None and previous is not kept else []
            self._kept[name] = kept
            self._kept.move_to_end(name)
            kept.users += 1
        self._sweep()
        return kept

    def _sweep(self) -> None:
        """Close models that a newer checkpoint has replaced, once they are no longer in use."""
        with self._lock:
            unused = [entry for entry in self._old if not entry.busy]
            self._old = [entry for entry in self._old if entry not in unused]
        for entry in unused:
            entry.close()

    def _find(self, name: str) -> Found | LoadedModel:
        with self._lock:
            entry = self._kept.get(name)
        run = runs().get(name) if name not in self._given else None
        if entry is not None and (run is None or next(iter(checkpoints(run)), None) == entry.folder):
            return entry.loaded  # no newer checkpoint
        return self._given[name]() if name in self._given else resolve(name, offline=True)

    def _load(self, name: str, found: Found | LoadedModel) -> Kept:
        if isinstance(found, LoadedModel):
            loaded, folder = found, Path(name)
        else:
            loaded, folder = replace(open_found(found), name=name), found.folder
        if (device := choose_device(self.device)) != "cpu":
            loaded.model.to(device)
        size = loaded.model.memory()
        self._make_room(size, name)
        return Kept(loaded, folder, size)

    def _make_room(self, size: int, name: str) -> None:
        """Evict least recently used models until the new one fits."""
        if size > self.memory:
            raise NoRoom(f"{name} needs {size:,} bytes; the limit is {self.memory:,}.", hint="Raise it with --memory.")
        with self._lock:
            for other, entry in list(self._kept.items()):
                if sum(loaded.bytes for loaded in self._kept.values()) + size <= self.memory:
                    return
                if not entry.busy:
                    self._kept.pop(other).close()

    def _runner(self, kept: Kept) -> "Runner":
        from peasy.generation.engine import Engine
        from peasy.generation.runner import Runner

        with kept.lock:
            if kept.runner is None:
                loaded = kept.loaded
                if loaded.kind in ("encoder", "words"):
                    raise InvalidInput(
                        f"{loaded.name} ({loaded.kind}) cannot generate text.", hint="Use /v1/embeddings for vectors."
                    )
                model, _ = pack_weights(loaded, self.weights)
                kept.runner = Runner(Engine(model, loaded.answers(), self.limits))
            return kept.runner
