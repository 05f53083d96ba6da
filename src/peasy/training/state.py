"""The state of a run on the disk: everything that the next step depends on, in checkpoints that are whole or absent.

A checkpoint is a model like any other, with the optimizer and the place in the run beside the weights. There are no
random states to keep: the order of samples and what is dropped out are functions of the seed and the step.
"""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from peasy import config
from peasy.checkpoint.home import checkpoints
from peasy.checkpoint.manifest import verifies
from peasy.checkpoint.model import compare, save_model
from peasy.checkpoint.store import read_checkpoint
from peasy.checkpoint.tensors import TensorFile, check_finite
from peasy.errors import InvalidInput, NoRoom
from peasy.models.ngram import NGramModel
from peasy.models.protocol import Model
from peasy.text import Tokenizer
from peasy.training.finite import check_weights
from peasy.training.optimizer import Optimizer

CHECKPOINTS = "checkpoints"
STATE, PLACE = "state.safetensors", "state.json"


@dataclass(frozen=True)
class Place:
    """Where a run stands: steps done, samples taken (of `context` tokens), tokens seen, seconds spent."""

    step: int = 0
    position: int = 0
    context: int = 0
    tokens: int = 0
    elapsed: float = 0.0


def save_state(
    run: Path,
    model: Model,
    optimizer: Optimizer | None,
    place: Place,
    tokenizer: Tokenizer | None = None,
    answers: Tokenizer | None = None,
    *,
    keep: int,
) -> Path:
    """Write the checkpoint of a step; when it is safe, those before the newest `keep` go."""
    target = run / CHECKPOINTS / f"step-{place.step:06}"
    if target.exists():
        if verifies(target):
            return target
        _set_aside(target, "damaged")
    check_weights(model, place.step)
    state = {} if optimizer is None else optimizer.state()
    for name, tensor in state.items():
        check_finite(tensor, f"The optimizer's {name}")
    extras = {
        PLACE: (json.dumps(config.plain(place), indent=2) + "\n").encode(),
        STATE: to_bytes({name: tensor.detach().contiguous() for name, tensor in state.items()}),
    }
    try:
        notes = {"step": str(place.step), "run": run.name}
        save_model(target, model, tokenizer, target_tokenizer=answers, extras=extras, notes=notes)
    except NoRoom as error:
        needed = model.memory() + sum(map(len, extras.values()))
        hint = "The checkpoints before it are untouched. Make room, then go on with --resume."
        raise NoRoom(f"{error.message.rstrip('.')}; {needed:,} bytes are needed.", hint=hint) from error
    _prune(run, keep)
    return target


def latest_state(run: Path) -> tuple[Path | None, str | None]:
    """The newest checkpoint that is whole, and a warning where newer ones are damaged; those are set aside."""
    damaged, found = [], None
    for folder in checkpoints(run):
        if verifies(folder):
            found = folder
            break
        damaged.append(folder)
    for folder in damaged:
        _set_aside(folder, "damaged")
    if not damaged:
        return found, None
    names = ", ".join(folder.name for folder in damaged)
    instead = f"{found.name} is used instead" if found else "the run starts anew"
    return found, f"{run}: {names} is damaged; {instead}."


def load_state(folder: Path, model: Model, optimizer: Optimizer | None) -> Place:
    """Put a checkpoint's numbers into the model and the optimizer, and say where the run stands."""
    checkpoint = read_checkpoint(folder, verified=True)
    if isinstance(model, NGramModel):  # the tables of a model that counts have grown
        model.expect({name: checkpoint.tensors.info(name).shape for name in checkpoint.tensors})
    compare(model, checkpoint.tensors, checkpoint.folder)
    model.load_state_dict({name: checkpoint.tensors[name] for name in checkpoint.tensors}, strict=True)
    if optimizer is not None:
        file = TensorFile(checkpoint.folder, STATE)
        optimizer.restore({name: file.tensor(name) for name in file.info})
    return config.read(Place, checkpoint.folder.read_json(PLACE), where=str(folder / PLACE))


def weights_hash(tensors: dict[str, Tensor]) -> str:
    """One hash for all weights: names, shapes and bits.

    >>> weights_hash({"a": torch.zeros(2)}) == weights_hash({"a": torch.zeros(2)})
    True
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def clean(run: Path) -> None:
    """Take away what a killed writer left: only for whoever holds the run's lock."""
    for pattern in (".*.part-*", ".*.old-*"):
        for leftover in (run / CHECKPOINTS).glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def _prune(run: Path, keep: int) -> None:
    for folder in checkpoints(run)[keep:]:
        gone = _set_aside(folder, "old")
        shutil.rmtree(gone, ignore_errors=True)


def _set_aside(folder: Path, why: str) -> Path:
    """Out of sight in one step, so that nobody ever meets half of it."""
    gone = folder.with_name(f".{folder.name}.{why}-{secrets.token_hex(4)}")
    try:
        os.rename(folder, gone)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be moved: {error.strerror}.") from None
    with contextlib.suppress(OSError):
        descriptor = os.open(folder.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return gone
