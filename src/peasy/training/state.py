"""Checkpoints of a run: weights, optimizer state and progress, written atomically.

A checkpoint is a regular model folder with optimizer state and progress added. No random states are saved:
the order of samples and dropout are functions of the seed and the step.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from peasy import config
from peasy.atomic import set_aside
from peasy.checkpoint.model import check_weights, save_model
from peasy.checkpoint.paths import latest_checkpoint, list_checkpoints
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import is_intact, read_checkpoint
from peasy.checkpoint.tensors import TensorFile, check_finite
from peasy.errors import ResourceUnavailable
from peasy.models.baselines import NGramModel
from peasy.models.protocol import Model
from peasy.parameters import Record
from peasy.tokenization import Tokenizer
from peasy.training.event import Saved
from peasy.training.learner import Learner, check_weights_finite
from peasy.training.optimizer import Optimizer

CHECKPOINTS_FOLDER = "checkpoints"
_STATE_FILE, _PROGRESS_FILE = "state.safetensors", "state.json"


class Progress(Record):
    """Progress of a run: steps, samples (of `seq_len` tokens), tokens, seconds.

    For early stopping, also the validation with the lowest loss, and `num_worse`, the number of those after it.
    """

    step: int = 0
    samples: int = 0
    seq_len: int = 0
    tokens: int = 0
    elapsed: float = 0.0
    best_loss: float | None = None
    best_step: int | None = None
    num_worse: int = 0

    def with_validation(self, loss: float) -> "Progress":
        """Return the progress after a validation."""
        if self.best_loss is None or loss < self.best_loss:
            return replace(self, best_loss=loss, best_step=self.step, num_worse=0)
        return replace(self, num_worse=self.num_worse + 1)


@dataclass
class Checkpointer:
    """Writes the checkpoints of a run; `newest` is the last one, `sha256` the hash of its weights.

    `keep_best` keeps also the one with the lowest validation loss.
    """

    run: Path
    keep: int
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    newest: Path | None = None
    sha256: str = ""
    keep_best: bool = False

    def save(self, learner: Learner, progress: Progress) -> Saved:
        """Write the checkpoint of a step; with several processes, one of them writes and all wait for it."""
        self.newest = self.run / CHECKPOINTS_FOLDER / f"step-{progress.step:06}"
        with learner.full_state() as state:
            if state is not None:
                if self.newest.exists() and not is_intact(self.newest):
                    set_aside(self.newest, "damaged")
                if not self.newest.exists():
                    self._write(self.newest, *state, progress)
                self.sha256 = weights_hash(state.model.state_dict())
        return Saved(progress.step, self.newest, self.sha256)

    def _write(self, target: Path, model: Model, optimizer_state: Mapping[str, Tensor], progress: Progress) -> None:
        """Write a checkpoint; once it is on disk, delete all but the newest `keep`, and the best one if asked for."""
        check_weights_finite(model, progress.step)
        for name, tensor in optimizer_state.items():
            check_finite(tensor, name, "The optimizer's tensor ")
        extras = {
            _PROGRESS_FILE: (json.dumps(config.to_plain(progress), indent=2) + "\n").encode(),
            _STATE_FILE: to_bytes({name: tensor.detach().contiguous() for name, tensor in optimizer_state.items()}),
        }
        notes, target_tokenizer = {"step": str(progress.step), "run": self.run.name}, self.target_tokenizer
        try:
            save_model(target, model, self.tokenizer, target_tokenizer=target_tokenizer, extras=extras, notes=notes)
        except ResourceUnavailable as error:
            needed = model.weight_bytes() + sum(map(len, extras.values()))
            message = f"{error.message.rstrip('.')}; {needed:,} bytes are needed."
            hint = "Earlier checkpoints are untouched. Free disk space, then continue with --resume."
            raise ResourceUnavailable(message, hint=hint) from error
        best = f"step-{progress.best_step or 0:06}" if self.keep_best else ""
        for folder in (old for old in list_checkpoints(self.run)[self.keep :] if old.name != best):
            shutil.rmtree(set_aside(folder, "old"), ignore_errors=True)


def latest_state(run: Path) -> tuple[Path | None, str | None]:
    """Return the newest intact checkpoint, and a warning if newer ones are damaged; those are set aside."""
    newest, damaged = latest_checkpoint(run)
    for folder in damaged:
        set_aside(folder, "damaged")
    instead = f"{newest.name} is used instead" if newest else "training starts over"
    names = ", ".join(folder.name for folder in damaged)
    return newest, f"{run}: {names} is damaged; {instead}." if damaged else None


def load_state(folder: Path, model: Model, optimizer: Optimizer | None) -> Progress:
    """Load a checkpoint into the model and the optimizer; return the progress of the run."""
    checkpoint = read_checkpoint(folder, verified=True)
    if isinstance(model, NGramModel):  # n-gram tables grow with the data
        model.allocate({name: checkpoint.tensors.info(name).shape for name in checkpoint.tensors})
    check_weights(model, checkpoint.tensors, checkpoint.folder)
    model.load_state_dict({name: checkpoint.tensors[name] for name in checkpoint.tensors}, strict=True)
    if optimizer is not None:
        load_optimizer_state(checkpoint.folder, optimizer)
    return config.read(Progress, checkpoint.folder.read_json(_PROGRESS_FILE), where=str(folder / _PROGRESS_FILE))


def load_optimizer_state(folder: SafeFolder, optimizer: Optimizer) -> None:
    """Load the optimizer state of a checkpoint."""
    file = TensorFile(folder, _STATE_FILE)
    optimizer.load_state_dict({name: file.tensor(name) for name in file.info})


def weights_hash(tensors: dict[str, Tensor]) -> str:
    """Return one hash of all weights: names, shapes and bits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def remove_leftovers(run: Path) -> None:
    """Delete the temporary folders of a killed writer; call only while holding the run's lock."""
    for pattern in (".*.part-*", ".*.old-*"):
        for leftover in (run / CHECKPOINTS_FOLDER).glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)
