"""A model written to disk and read again: in the standard format of its family, or as peasy keeps it."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from peasy.checkpoint import huggingface
from peasy.checkpoint.memory import show_bytes
from peasy.checkpoint.model import load_model, save_model
from peasy.checkpoint.store import read_checkpoint
from peasy.errors import NoRoom
from peasy.models.protocol import Model


def export_again(model: Model) -> Model:
    """Through a Hugging Face folder; an error says why a model has no place in any family."""

    def way(folder: Path) -> Model:
        huggingface.write_folder(folder, model.config, model.state_dict())
        return huggingface.load_model(huggingface.read_folder(folder))

    return _through(model, way)


def save_again(model: Model) -> Model:
    """Through a checkpoint of peasy's own."""

    def way(folder: Path) -> Model:
        save_model(folder, model)
        return load_model(read_checkpoint(folder))

    return _through(model, way)


def _through(model: Model, way: Callable[[Path], Model]) -> Model:
    """Weights are mapped from their file, so they are copied before the folder goes."""
    with tempfile.TemporaryDirectory(prefix="peasy-", ignore_cleanup_errors=True) as place:
        free = shutil.disk_usage(place).free
        if free < 1.1 * model.memory():
            raise NoRoom(f"A copy needs {show_bytes(model.memory())} in {place}, and {show_bytes(free)} are free.")
        again = way(Path(place) / "copy")
        again.load_state_dict({name: tensor.clone() for name, tensor in again.state_dict().items()}, assign=True)
    return again.to(model.device)
