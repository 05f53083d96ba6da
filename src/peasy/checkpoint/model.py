"""Save and load models as checkpoints; names, shapes and sizes are checked before any weight is read."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from peasy import config as settings
from peasy.checkpoint import ram
from peasy.checkpoint.safe_folder import SafeFolder, join_names, short_repr
from peasy.checkpoint.store import CONFIG_FILE, Checkpoint, write_checkpoint
from peasy.checkpoint.tensors import TensorStore
from peasy.errors import InvalidInput
from peasy.models.baselines import NGramModel
from peasy.models.build import build_on_meta
from peasy.models.config import read_config
from peasy.models.protocol import Model
from peasy.tokenization import Tokenizer

MAX_SIZE = 2**31 - 1


def save_model(
    folder: str | Path,
    model: Model,
    tokenizer: Tokenizer | None = None,
    *,
    target_tokenizer: Tokenizer | None = None,
    notes: Mapping[str, str] | None = None,
    extras: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a model with its tokenizer as a new checkpoint folder."""
    config = settings.to_plain(model.config)
    return write_checkpoint(
        folder, model.state_dict(), config, tokenizer, target_tokenizer=target_tokenizer, notes=notes, extras=extras
    )


def load_model(checkpoint: Checkpoint) -> Model:
    """Return the model in eval mode, with weights memory-mapped from the checkpoint; nothing is copied."""
    folder, tensors = checkpoint.folder.path, checkpoint.tensors
    where = str(folder / CONFIG_FILE)
    _check_sizes(checkpoint.config, len(tensors), where)
    model = build_on_meta(read_config(checkpoint.config, where), where)
    if isinstance(model, NGramModel):  # the size of its count tables depends on the training data
        model.allocate({name: tensors.info(name).shape for name in tensors})
    check_weights(model, tensors, checkpoint.folder)
    ram.require_ram(tensors.nbytes, str(folder))
    model.load_state_dict(dict(tensors), strict=True, assign=True)
    return model.eval()


def check_weights(model: Model, tensors: TensorStore, folder: SafeFolder) -> None:
    """Require exactly the model's weights, with their shapes; the error names the first that differs."""
    expected = model.state_dict()
    for names, problem in (
        ([name for name in expected if name not in tensors], "is missing the weights"),
        ([name for name in tensors if name not in expected], "has unexpected weights"),
    ):
        if names:
            message = f"{folder.path} {problem} {join_names([short_repr(name) for name in names])}."
            raise InvalidInput(message, hint=f"Its {CONFIG_FILE} and its weights do not match.")
    for name, weight in expected.items():
        info = tensors.info(name)
        if info.shape != tuple(weight.shape):
            shapes = f"has shape {list(info.shape)}; {CONFIG_FILE} requires {list(weight.shape)}"
            raise InvalidInput(f"{folder.path}: tensor {short_repr(name)} {shapes}.")
        if getattr(torch, info.dtype).is_floating_point != weight.dtype.is_floating_point:
            raise InvalidInput(f"{folder.path}: tensor {short_repr(name)} has dtype {info.dtype}, not {weight.dtype}.")


def _check_sizes(data: object, num_tensors: int, where: str) -> None:
    """Refuse sizes of a damaged file that would take forever to build: each layer has at least one tensor."""
    for path, number in _iter_ints(data, ""):
        maximum = num_tensors if path.split(".")[-1] == "num_layers" else MAX_SIZE
        if not -MAX_SIZE <= number <= maximum:
            raise InvalidInput(f"{where}: {path} is {short_repr(number)}; the maximum here is {maximum:,}.")


def _iter_ints(data: object, path: str) -> Iterator[tuple[str, int]]:
    if type(data) is int:
        yield path, data
    elif isinstance(data, (dict, list)):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            inner = f"{path}[{key}]" if isinstance(data, list) else f"{path}.{key}" if path else str(key)
            yield from _iter_ints(value, inner)
