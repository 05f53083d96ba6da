"""Save and load models as checkpoints; names, shapes and sizes are checked before any weight is read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from peasy import config as settings
from peasy.checkpoint import memory
from peasy.checkpoint.folder import Folder, short
from peasy.checkpoint.store import CONFIG, Checkpoint, write_checkpoint
from peasy.checkpoint.tensors import Tensors
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.config import Config, read_config
from peasy.models.ngram import NGramModel
from peasy.models.protocol import Model
from peasy.text import Tokenizer

MOST = 2**31 - 1
_SHOWN = 6


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
    weights = model.state_dict()
    return write_checkpoint(
        folder,
        weights,
        settings.plain(model.config),
        tokenizer,
        target_tokenizer=target_tokenizer,
        notes=notes,
        extras=extras,
    )


def load_model(checkpoint: Checkpoint) -> Model:
    """Return the model in eval mode, with weights memory-mapped from the checkpoint; nothing is copied."""
    where = checkpoint.folder.path
    _check_sizes(checkpoint.config, len(checkpoint.tensors), f"{where / CONFIG}")
    model = build_empty(read_config(checkpoint.config, f"{where / CONFIG}"), f"{where / CONFIG}")
    if isinstance(model, NGramModel):  # the size of its count tables depends on the training data
        model.expect({name: checkpoint.tensors.info(name).shape for name in checkpoint.tensors})
    compare(model, checkpoint.tensors, checkpoint.folder)
    memory.require(checkpoint.tensors.bytes, str(where))
    model.load_state_dict({name: checkpoint.tensors[name] for name in checkpoint.tensors}, strict=True, assign=True)
    return model.eval()


def build_empty(config: Config, where: str) -> Model:
    """Build the model on the meta device; impossible sizes raise an error that names `where`."""
    try:
        return build(config, seed=None)
    except (RuntimeError, OverflowError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidInput(f"{where}: no model can be built with these sizes: {reason}") from None


def compare(model: Model, tensors: Tensors, folder: Folder) -> None:
    """Require exactly the model's weights, with their shapes; the error names the first that differs."""
    expected = model.state_dict()
    for names, problem in (
        ([name for name in expected if name not in tensors], "is missing the weights"),
        ([name for name in tensors if name not in expected], "has unexpected weights"),
    ):
        if names:
            hint = f"Its {CONFIG} and its weights do not match."
            raise InvalidInput(f"{folder.path} {problem} {_several(names)}.", hint=hint)
    for name, weight in expected.items():
        info = tensors.info(name)
        if info.shape != tuple(weight.shape):
            shapes = f"has shape {list(info.shape)}; {CONFIG} requires {list(weight.shape)}"
            raise InvalidInput(f"{folder.path}: tensor {short(name)} {shapes}.")
        if getattr(torch, info.dtype).is_floating_point != weight.dtype.is_floating_point:
            raise InvalidInput(f"{folder.path}: tensor {short(name)} has dtype {info.dtype}, not {weight.dtype}.")


def _check_sizes(data: Any, tensors: int, where: str) -> None:
    """Refuse sizes of a damaged file that would take forever to build: each layer has at least one tensor."""
    for path, number in _numbers(data, ""):
        most = tensors if path.split(".")[-1] == "layers" else MOST
        if not -MOST <= number <= most:
            raise InvalidInput(f"{where}: {path} is {short(number)}; the maximum here is {most:,}.")


def _numbers(data: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _numbers(value, f"{path}.{key}" if path else key)
    elif isinstance(data, list):
        for i, value in enumerate(data):
            yield from _numbers(value, f"{path}[{i}]")
    elif type(data) is int:
        yield path, data


def _several(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(short(name) for name in names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
