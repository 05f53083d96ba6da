"""A small model, trained for an experiment and forgotten afterwards: its curves, and the model itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from peasy.corpora import Corpus, open_corpus
from peasy.workbench.experiments.finding import Hear
from peasy.workbench.load import LoadedModel, load
from peasy.workbench.train import training

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Learned:
    """What became of a run: the loss on held-out text by step, the training loss by step, tokens for each second."""

    model: LoadedModel
    valid: Points
    loss: Points
    rate: float

    @property
    def last(self) -> float:
        """The last loss on held-out text."""
        return self.valid[-1][1]


def some_stories(steps: int) -> Corpus:
    """As many stories as so many steps read: each is seen once, and none is made that nobody reads."""
    batch = int(open_corpus("stories").suggests["batch"])
    return open_corpus("stories", size=steps * batch, held_out=400)


def learn(
    kind: str,
    data: str | Corpus,
    name: str,
    hear: Hear,
    *,
    steps: int,
    seed: int,
    settings: Mapping[str, Any] | None = None,
    preset: str = "tiny",
    watch: Callable[[int, LoadedModel], None] | None = None,
) -> Learned:
    """Train `kind` on `data` in a folder of its own, which is gone afterwards; `watch` is shown every checkpoint."""
    from peasy.training.event import Saved, Step, Validated

    valid, losses, rates = [], [], []
    with TemporaryDirectory() as folder:
        run = Path(folder, "run")
        quiet = {"validate": 8, "sample": 0, "save": 1, **(settings or {})}
        for event in training(kind, data, preset=preset, steps=steps, seed=seed, run=run, settings=quiet):
            if isinstance(event, Validated):
                valid.append((float(event.step), event.loss))
                hear(f"{name}, step {event.step:,} of {steps:,}: loss {event.loss:.3f}")
            elif isinstance(event, Step):
                losses.append((float(event.step), event.loss))
                rates.append(event.rate)
            elif isinstance(event, Saved) and watch is not None:
                watch(event.step, load(event.folder, device="cpu"))
        return Learned(load(run), tuple(valid), tuple(losses), sorted(rates)[len(rates) // 2])
