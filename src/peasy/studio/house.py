"""The models of the house: known by name, loaded once, and let go when memory is short.

A caller can only name what is here already: a built-in, a run, the hub's cache, or what was given on the command line.
Nothing a caller says is ever opened as a path.
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
"""Bytes for the weights of all loaded models together, unless somebody says otherwise."""


@dataclass(eq=False)
class Kept:
    """A loaded model, with its engine once somebody wanted one; `users` are reading it right now."""

    loaded: LoadedModel
    folder: Path
    bytes: int
    runner: "Runner | None" = None
    users: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def busy(self) -> bool:
        """Does somebody still need it?"""
        return self.users > 0 or (self.runner is not None and not self.runner.engine.idle)

    def close(self) -> None:
        """Let go of it."""
        if self.runner is not None:
            self.runner.close()


class House:
    """Models by name: those that are given, and unless `only` those are meant, all that this machine has.

    `weights` says how those that write hold theirs, `limits` bound each engine, `memory` all weights together.

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
        found = resolve(model)
        name = Path(found.name).name if found.kind == "path" else found.name
        self._given[name] = lambda: resolve(model)

    @property
    def names(self) -> tuple[str, ...]:
        """What may be asked for."""
        found = () if self.only else (*built_in(), *runs(), *all_cached())
        return tuple(dict.fromkeys((*self._given, *found)))

    @property
    def kept(self) -> dict[str, Kept]:
        """What is loaded now."""
        with self._lock:
            return dict(self._kept)

    @contextmanager
    def use(self, name: str) -> Iterator[LoadedModel]:
        """The model of that name; it is not let go as long as it is used."""
        with self._used(name) as kept:
            yield kept.loaded

    def check(self, name: str) -> str:
        """The name itself, or an error with the nearest one."""
        if name not in (names := self.names):
            hint = did_you_mean(name, names) or (f"Here: {', '.join(names[:12])}." if names else "None is here yet.")
            raise NotFound(f'No model "{name[:100]}".', hint=hint)
        return name

    @contextmanager
    def engine(self, name: str) -> Iterator["tuple[LoadedModel, Runner]"]:
        """The model with the engine that answers for it, which is made once."""
        with self._used(name) as kept:
            yield kept.loaded, self._runner(kept)

    def warm(self) -> None:
        """Load what was given now, so that nobody has to wait for it; those that write get their engines."""
        for name in self._given:
            with contextlib.suppress(InvalidInput), self.engine(name):  # what does not write is loaded all the same
                pass

    def ready(self, name: str) -> bool:
        """Is this model loaded, with its engine running?"""
        kept = self.kept.get(name)
        return kept is not None and kept.runner is not None

    def cancel(self) -> None:
        """Take nothing more, and end what is being written; each is told so."""
        for kept in self.kept.values():
            if kept.runner is not None:
                kept.runner.close(timeout=0)

    def close(self) -> None:
        """Let everything go."""
        for kept in (*self.kept.values(), *self._old):
            kept.close()
        with self._lock:
            self._kept.clear()

    # Coming and going.

    @contextmanager
    def _used(self, name: str) -> Iterator[Kept]:
        kept = self._take(name)
        try:
            yield kept
        finally:
            with self._lock:
                kept.users -= 1

    def _take(self, name: str) -> Kept:
        found = self._find(self.check(name))
        with self._lock:
            lock = self._loading.setdefault(name, threading.Lock())
        with lock:  # the same model is not loaded twice at once; others are not held up
            with self._lock:
                kept = self._kept.get(name)
                if kept is not None and (isinstance(found, LoadedModel) or kept.folder == found.folder):
                    return self._mark(name, kept)
            return self._mark(name, self._load(name, found))

    def _mark(self, name: str, kept: Kept) -> Kept:
        with self._lock:
            before = self._kept.get(name)
            self._old += [before] if before is not None and before is not kept else []
            self._kept[name] = kept
            self._kept.move_to_end(name)
            kept.users += 1
        self._sweep()
        return kept

    def _sweep(self) -> None:
        """Models in whose place a newer checkpoint stands go when nobody reads them any more."""
        with self._lock:
            gone = [kept for kept in self._old if not kept.busy]
            self._old = [kept for kept in self._old if kept not in gone]
        for kept in gone:
            kept.close()

    def _find(self, name: str) -> Found | LoadedModel:
        with self._lock:
            kept = self._kept.get(name)
        run = runs().get(name) if name not in self._given else None
        if kept is not None and (run is None or next(iter(checkpoints(run)), None) == kept.folder):
            return kept.loaded  # nothing newer has been saved
        return self._given[name]() if name in self._given else resolve(name, offline=True)

    def _load(self, name: str, found: Found | LoadedModel) -> Kept:
        if isinstance(found, LoadedModel):
            loaded, folder = found, Path(name)
        else:
            loaded, folder = replace(open_found(found), name=name), found.folder
        if (chosen := choose_device(self.device)) != "cpu":
            loaded.model.to(chosen)
        size = loaded.model.memory()
        self._make_room(size, name)
        return Kept(loaded, folder, size)

    def _make_room(self, size: int, name: str) -> None:
        """Let go of what was not used for the longest time, until the new one fits."""
        if size > self.memory:
            raise NoRoom(f"{name} needs {size:,} bytes; the models here have {self.memory:,}.", hint="Give --memory.")
        with self._lock:
            for other, kept in list(self._kept.items()):
                if sum(each.bytes for each in self._kept.values()) + size <= self.memory:
                    return
                if not kept.busy:
                    self._kept.pop(other).close()

    def _runner(self, kept: Kept) -> "Runner":
        from peasy.generation.engine import Engine
        from peasy.generation.runner import Runner

        with kept.lock:
            if kept.runner is None:
                loaded = kept.loaded
                if loaded.kind in ("encoder", "words"):
                    raise InvalidInput(
                        f"{loaded.name} is an {loaded.kind}: it does not write.", hint="Ask /v1/embeddings for vectors."
                    )
                model, _ = pack_weights(loaded, self.weights)
                kept.runner = Runner(Engine(model, loaded.answers(), self.limits))
            return kept.runner
