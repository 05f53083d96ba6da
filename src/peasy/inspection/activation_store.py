"""Activation store: captures of a whole data set on disk, in safetensors shards within a memory budget."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from peasy.atomic import atomic_dir
from peasy.errors import InvalidInput, NotFound
from peasy.inspection.capture import CaptureSpec, Recorder
from peasy.inspection.forward import ModelInput, check_input, forward_hidden, forward_logits
from peasy.inspection.results import Array, Capture
from peasy.models.protocol import Model
from peasy.nn.module_path import ModulePath
from peasy.parameters import Record

_INDEX_FILE = "index.json"


class ActivationStore(Record):
    """Folder of activation shards: number of sequences and files, bytes of arrays."""

    folder: Path
    num_sequences: int
    num_files: int
    nbytes: int


def write_activations(
    model: Model,
    inputs: Iterable[ModelInput],
    spec: CaptureSpec,
    folder: str | Path,
    *,
    budget: int,
    storage: str = "float16",
) -> ActivationStore:
    """Capture every input and write the arrays to disk; at most `budget` bytes are held in memory.

    The folder is created atomically. An input that alone exceeds the budget raises before it runs.
    """
    spec = spec.resolved(model)
    forward = forward_logits if "logits" in spec.steps else forward_hidden
    with atomic_dir(folder) as new_folder:
        writer = _ShardWriter(new_folder, budget)
        for model_input in inputs:
            check_input(model, model_input)
            recorder = Recorder.for_input(model, model_input, spec, budget, storage)
            writer.reserve(recorder.nbytes)
            forward(model, model_input, recorder.tap())
            writer.add(model_input, tuple(recorder.captured.values()))
        return writer.finish(Path(folder), spec, storage)


class _ShardWriter:
    """Shard writer: collects arrays and writes a shard when the budget is reached."""

    def __init__(self, folder: Path, budget: int) -> None:
        self.folder, self.budget = folder, budget
        self.pending: dict[str, Array] = {}
        self.pending_bytes = self.num_files = self.nbytes = 0
        self.sequences: list[dict[str, object]] = []

    def reserve(self, size: int) -> None:
        if self.pending and self.pending_bytes + size > self.budget:
            self.flush()

    def add(self, model_input: ModelInput, captures: tuple[Capture, ...]) -> None:
        number = len(self.sequences)
        self.sequences.append({"ids": model_input.ids, "target": model_input.target, "file": self.num_files})
        for capture in captures:
            path = capture.path
            name = f"{number}.{path.stack}.{path.layer}.{path.part}.{capture.step}"
            self.pending[name] = np.ascontiguousarray(capture.array)
            if capture.value_norms is not None:
                self.pending[f"{name}.value_norms"] = np.ascontiguousarray(capture.value_norms)
            self.pending_bytes += capture.array.nbytes

    def flush(self) -> None:
        save_file(self.pending, self.folder / _file_name(self.num_files))
        self.num_files, self.nbytes = self.num_files + 1, self.nbytes + self.pending_bytes
        self.pending, self.pending_bytes = {}, 0

    def finish(self, folder: Path, spec: CaptureSpec, storage: str) -> ActivationStore:
        if self.pending:
            self.flush()
        if not self.sequences:
            raise InvalidInput("The data set is empty.")
        fields = {"steps": spec.steps, "layers": spec.layers, "heads": spec.heads, "rows": spec.rows}
        index = {"sequences": self.sequences, "spec": fields, "storage": storage}
        (self.folder / _INDEX_FILE).write_text(json.dumps(index), encoding="utf-8")
        return ActivationStore(folder, len(self.sequences), self.num_files, self.nbytes)


def read_activations(folder: str | Path) -> Iterator[tuple[ModelInput, dict[tuple[ModulePath, str], Array]]]:
    """Yield every input of an activation store with its arrays."""
    folder = Path(folder)
    if not (folder / _INDEX_FILE).is_file():
        raise NotFound(f"{folder} is not an activation store: it has no {_INDEX_FILE}.")
    index = json.loads((folder / _INDEX_FILE).read_text(encoding="utf-8"))
    for number, entry in enumerate(index["sequences"]):
        target = None if entry["target"] is None else tuple(entry["target"])
        with safe_open(folder / _file_name(entry["file"]), framework="np") as file:
            names = [name for name in file.keys() if name.startswith(f"{number}.")]  # noqa: SIM118
            arrays = {}
            for name in names:
                _, stack, layer, part, step = name.split(".", 4)
                arrays[ModulePath(stack, int(layer), part), step] = file.get_tensor(name)
            yield ModelInput(tuple(entry["ids"]), target), arrays


def _file_name(number: int) -> str:
    return f"activations-{number:05}.safetensors"
