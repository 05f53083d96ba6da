"""Round trips through disk: export and import as a Hugging Face folder, save and load as a peasy checkpoint."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from peasy.checkpoint import huggingface
from peasy.checkpoint.model import load_model, save_model
from peasy.checkpoint.ram import format_bytes
from peasy.checkpoint.store import read_checkpoint
from peasy.errors import ResourceUnavailable
from peasy.models.protocol import Model


def export_roundtrip(model: Model) -> Model:
    """Return a copy through a Hugging Face folder; raises if no family supports the model."""

    def write_and_read(folder: Path) -> Model:
        huggingface.write_folder(folder, model.config, model.state_dict())
        return huggingface.load_model(huggingface.read_folder(folder))

    return _roundtrip(model, write_and_read)


def save_roundtrip(model: Model) -> Model:
    """Return a copy through a peasy checkpoint."""

    def write_and_read(folder: Path) -> Model:
        save_model(folder, model)
        return load_model(read_checkpoint(folder))

    return _roundtrip(model, write_and_read)


def _roundtrip(model: Model, write_and_read: Callable[[Path], Model]) -> Model:
    """Run a round trip in a temporary folder; the mapped weights are copied before it is deleted."""
    with tempfile.TemporaryDirectory(prefix="peasy-", ignore_cleanup_errors=True) as folder:
        free = shutil.disk_usage(folder).free
        if free < 1.1 * model.weight_bytes():
            raise ResourceUnavailable(
                f"A copy needs {format_bytes(model.weight_bytes())} in {folder}; {format_bytes(free)} are free."
            )
        reloaded = write_and_read(Path(folder) / "copy")
        reloaded.load_state_dict({name: tensor.clone() for name, tensor in reloaded.state_dict().items()}, assign=True)
    return reloaded.to(model.device)
