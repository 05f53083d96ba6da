"""Models of experiments: loaded by name, untrained, with ablated heads, or small ones trained from scratch."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

from peasy.commands.align import LayerHead
from peasy.commands.load import LoadedModel, load
from peasy.commands.train import train_events
from peasy.datasets import Corpus, open_corpus
from peasy.experiments.result import OnStatus, Points
from peasy.extras import require_extra

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from peasy.inspection.forward import ModelInput

ModelSource = str | Path | LoadedModel
TRAIN_SETTINGS = {"num_validations": 8, "num_samplings": 0, "num_saves": 1, "precision": "float32"}
"""Settings of all training runs: float32, so that results do not depend on what the processor supports."""


def open_model(model: ModelSource) -> LoadedModel:
    """Load a model by name or path; a loaded one is returned as it is."""
    require_extra("torch")
    return model if isinstance(model, LoadedModel) else load(model, device="cpu")


def untrained(loaded: LoadedModel, seed: int) -> LoadedModel:
    """Return the same model with newly initialized weights."""
    from peasy.models.build import build

    return replace(
        loaded, name=f"{loaded.name}, untrained", model=build(loaded.model.config, seed=seed), packed_models={}
    )


def training_seed(loaded: LoadedModel) -> int:
    """Return the seed of the weights that training began with, from the recipe in the model's folder; 0 without one."""
    from peasy.checkpoint.safe_folder import SafeFolder
    from peasy.commands.runs import RECIPE

    if loaded.folder is None or not (loaded.folder / RECIPE).is_file():
        return 0
    return int(SafeFolder(loaded.folder).read_json(RECIPE).get("seed", 0))


def ablate_heads(loaded: LoadedModel, heads: Iterable[LayerHead], mean_of: Sequence[str] = ()) -> LoadedModel:
    """Return the same model with some heads ablated: set to zero, or to their mean over the texts `mean_of`."""
    from peasy.commands.model_input import make_input
    from peasy.inspection import edit
    from peasy.inspection.apply_edits import EditContext, IntervenedModel, make_intervention

    def read_texts(texts: edit.Texts) -> list["ModelInput"]:
        return [make_input(loaded, str(text)).model_input for text in texts]

    edits = [edit.mean(mean_of, *head) if mean_of else edit.zero(*head) for head in heads]
    change = make_intervention(edits, EditContext(loaded.model, read_texts=read_texts))
    if change is None:
        return loaded
    return replace(loaded, model=cast(Any, IntervenedModel(loaded.model, change)), packed_models={})


def format_head(head: LayerHead) -> str:
    """Format (layer, head) as `peasy look` does.

    >>> format_head((2, 1))
    '2.1'
    """
    return f"{head[0]}.{head[1]}"


@dataclass(frozen=True)
class TrainedModel:
    """Trained model with its validation loss by step."""

    model: LoadedModel
    validation_curve: Points

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
    settings: Mapping[str, object],
    preset: Literal["tiny", "small"] = "tiny",
    on_checkpoint: Callable[[int, LoadedModel], None] | None = None,
) -> TrainedModel:
    """Train `kind` on `data` in a temporary folder; `on_checkpoint` is called with every checkpoint."""
    require_extra("torch")
    from peasy.training.event import Saved, Validated

    losses = []
    with TemporaryDirectory() as folder:
        run = Path(folder, "run")
        run_settings = {**TRAIN_SETTINGS, **settings}
        for event in train_events(kind, data, preset=preset, steps=steps, seed=seed, run=run, settings=run_settings):
            if isinstance(event, Validated):
                losses.append((float(event.step), event.loss))
                on_status(f"{name}, step {event.step:,} of {steps:,}: loss {event.loss:.3f}")
            elif isinstance(event, Saved) and on_checkpoint is not None:
                on_checkpoint(event.step, load(event.folder, device="cpu"))
        return TrainedModel(load(run), tuple(losses))


def fit(
    parameters: Iterable["Tensor"], loss: Callable[["Generator"], "Tensor"], steps: int, seed: int, lr: float
) -> Points:
    """Minimize a loss of random batches by Adam; return about 20 points of the loss by step."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    optimizer, points = torch.optim.Adam(parameters, lr=lr), []
    for step in range(steps):
        value = loss(rng)
        optimizer.zero_grad()
        torch.autograd.backward(value)
        optimizer.step()
        if step % max(steps // 20, 1) == 0 or step == steps - 1:
            points.append((float(step), float(value.detach())))
    return tuple(points)


def time_call(work: Callable[[], object]) -> float:
    """Return the duration in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
