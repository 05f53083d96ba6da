"""Round trips through disk: export and import as a Hugging Face folder, save and load as a peasy checkpoint."""

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
    """Return a copy through a Hugging Face folder; raises if no family supports the model."""

    def write_and_read(folder: Path) -> Model:
        huggingface.write_folder(folder, model.config, model.state_dict())
        return huggingface.load_model(huggingface.read_folder(folder))

    return _through(model, write_and_read)


def save_again(model: Model) -> Model:
    """Return a copy through a peasy checkpoint."""

    def write_and_read(folder: Path) -> Model:
        save_model(folder, model)
        return load_model(read_checkpoint(folder))

    return _through(model, write_and_read)


def _through(model: Model, way: Callable[[Path], Model]) -> Model:
    """Run a round trip in a temporary folder; the mapped weights are copied before it is deleted."""
    with tempfile.TemporaryDirectory(prefix="peasy-", ignore_cleanup_errors=True) as folder:
        free = shutil.disk_usage(folder).free
        if free < 1.1 * model.memory():
            raise NoRoom(f"A copy needs {show_bytes(model.memory())} in {folder}; {show_bytes(free)} are free.")
        reloaded = way(Path(folder) / "copy")
        reloaded.load_state_dict({name: tensor.clone() for name, tensor in reloaded.state_dict().items()}, assign=True)
    return reloaded.to(model.device)
