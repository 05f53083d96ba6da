"""Trains a small temporary model for an experiment: loss curves and the model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from peasy.commands.load import LoadedModel, load
from peasy.commands.train import train_events
from peasy.datasets import Corpus, open_corpus
from peasy.experiments.result import OnStatus

CurvePoints = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class TrainedModel:
    """Trained model with validation loss and training loss by step, and tokens per second."""

    model: LoadedModel
    validation_curve: CurvePoints
    training_curve: CurvePoints
    tokens_per_second: float

    @property
    def final_loss(self) -> float:
        """Final validation loss."""
        return self.validation_curve[-1][1]


def stories_for_steps(steps: int) -> Corpus:
    """Generate as many stories as `steps` batches need, so that each is seen once."""
    batch_size = int(open_corpus("stories").suggested_settings["batch_size"])
    return open_corpus("stories", num_train=steps * batch_size, num_valid=400)


def train_temporary(
    kind: str,
    data: str | Corpus,
    name: str,
    on_status: OnStatus,
    *,
    steps: int,
    seed: int,
    settings: Mapping[str, Any] | None = None,
    preset: str = "tiny",
    on_checkpoint: Callable[[int, LoadedModel], None] | None = None,
) -> TrainedModel:
    """Train `kind` on `data` in a temporary folder; `on_checkpoint` is called with every checkpoint."""
    from peasy.training.event import Saved, TrainStep, Validated

    validation_losses, training_losses, rates = [], [], []
    with TemporaryDirectory() as folder:
        run = Path(folder, "run")
        run_settings = {"num_validations": 8, "num_samplings": 0, "num_saves": 1, **(settings or {})}
        for event in train_events(kind, data, preset=preset, steps=steps, seed=seed, run=run, settings=run_settings):
            if isinstance(event, Validated):
                validation_losses.append((float(event.step), event.loss))
                on_status(f"{name}, step {event.step:,} of {steps:,}: loss {event.loss:.3f}")
            elif isinstance(event, TrainStep):
                training_losses.append((float(event.step), event.loss))
                rates.append(event.tokens_per_second)
            elif isinstance(event, Saved) and on_checkpoint is not None:
                on_checkpoint(event.step, load(event.folder, device="cpu"))
        return TrainedModel(load(run), tuple(validation_losses), tuple(training_losses), sorted(rates)[len(rates) // 2])
