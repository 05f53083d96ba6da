"""Trains a small temporary model for an experiment: loss curves and the model."""

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
    """Trained model with validation loss and training loss by step, and tokens per second."""

    model: LoadedModel
    valid: Points
    loss: Points
    rate: float

    @property
    def last(self) -> float:
        """Final validation loss."""
        return self.valid[-1][1]


def some_stories(steps: int) -> Corpus:
    """Generate as many stories as `steps` batches need, so that each is seen once."""
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
    """Train `kind` on `data` in a temporary folder; `watch` is called with every checkpoint."""
    from peasy.training.event import Saved, Step, Validated

    validation_losses, training_losses, rates = [], [], []
    with TemporaryDirectory() as folder:
        run = Path(folder, "run")
        run_settings = {"validate": 8, "sample": 0, "save": 1, **(settings or {})}
        for event in training(kind, data, preset=preset, steps=steps, seed=seed, run=run, settings=run_settings):
            if isinstance(event, Validated):
                validation_losses.append((float(event.step), event.loss))
                hear(f"{name}, step {event.step:,} of {steps:,}: loss {event.loss:.3f}")
            elif isinstance(event, Step):
                training_losses.append((float(event.step), event.loss))
                rates.append(event.rate)
            elif isinstance(event, Saved) and watch is not None:
                watch(event.step, load(event.folder, device="cpu"))
        return Learned(load(run), tuple(validation_losses), tuple(training_losses), sorted(rates)[len(rates) // 2])
