"""Activation store: captures of a whole data set on disk, in safetensors shards within a memory budget."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from peasy.commit import committed
from peasy.errors import InvalidInput, NotFound
from peasy.looking.budget import choose_storage
from peasy.looking.part import parts_of, widths_of
from peasy.looking.question import Question
from peasy.looking.reading import Reading, check_reading, read, run
from peasy.looking.record import Capture
from peasy.looking.recorder import Recorder
from peasy.models.protocol import Model
from peasy.nn.edit import Edit
from peasy.nn.place import Place

INDEX = "looks.json"


@dataclass(frozen=True)
class Kept:
    """Folder of activation shards: number of sequences and files, bytes of arrays."""

    folder: Path
    texts: int
    files: int
    bytes: int


def stream_looks(
    model: Model, readings: Iterable[Reading], question: Question, folder: str | Path, *,
    budget: int, storage: str = "float16", edit: Edit | None = None, said: tuple[str, ...] = (),
) -> Kept:  # fmt: skip
    """Capture every input and write the arrays to disk; at most `budget` bytes are held in memory.

    The folder is created atomically. An input that alone exceeds the budget raises before it runs.
    """
    attentions, dims = parts_of(model), widths_of(model)
    question.check("This model", attentions, dims)
    with committed(folder) as new_folder:
        writer = _Writer(new_folder, budget)
        for model_input in readings:
            check_reading(model, model_input)
            lengths = model_input.lengths(model)
            num_values = question.numbers(attentions, dims, lengths)
            choose_storage(num_values, budget, storage)
            writer.make_room(num_values * (2 if storage == "float16" else 4))
            recorder = Recorder(question, lengths, storage)
            (read if "logits" in question.steps else run)(model, model_input, recorder.tap(), edit)
            writer.add(model_input, recorder.captures())
        return writer.finish(Path(folder), question, storage, said)


class _Writer:
    """Shard writer: collects arrays and writes a shard when the budget is reached."""

    def __init__(self, place: Path, budget: int) -> None:
        self.place, self.budget = place, budget
        self.waiting: dict[str, np.ndarray] = {}
        self.held = self.files = self.bytes = 0
        self.texts: list[dict[str, object]] = []

    def make_room(self, size: int) -> None:
        if self.waiting and self.held + size > self.budget:
            self.flush()

    def add(self, reading: Reading, captures: tuple[Capture, ...]) -> None:
        number = len(self.texts)
        self.texts.append({"ids": reading.ids, "target": reading.target, "file": self.files})
        for capture in captures:
            path = capture.place
            name = f"{number}.{path.stack}.{path.layer}.{path.part}.{capture.step}"
            self.waiting[name] = np.ascontiguousarray(capture.array)
            if capture.sizes is not None:
                self.waiting[f"{name}.sizes"] = np.ascontiguousarray(capture.sizes)
            self.held += capture.array.nbytes

    def flush(self) -> None:
        save_file(self.waiting, self.place / _file(self.files))
        self.files, self.bytes = self.files + 1, self.bytes + self.held
        self.waiting, self.held = {}, 0

    def finish(self, folder: Path, question: Question, storage: str, said: tuple[str, ...]) -> Kept:
        if self.waiting:
            self.flush()
        if not self.texts:
            raise InvalidInput("The data set is empty.")
        fields = {"steps": question.steps, "layers": question.layers, "heads": question.heads, "rows": question.rows}
        index = {"texts": self.texts, "asked": fields, "storage": storage, "edits": said}
        (self.place / INDEX).write_text(json.dumps(index), encoding="utf-8")
        return Kept(folder, len(self.texts), self.files, self.bytes)


def read_looks(folder: str | Path) -> Iterator[tuple[Reading, dict[tuple[Place, str], np.ndarray]]]:
    """Yield every input of an activation store with its arrays."""
    folder = Path(folder)
    if not (folder / INDEX).is_file():
        raise NotFound(f"{folder} is not an activation store: it has no {INDEX}.")
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    for number, entry in enumerate(index["texts"]):
        target = None if entry["target"] is None else tuple(entry["target"])
        with safe_open(folder / _file(entry["file"]), framework="np") as file:
            names = [name for name in file.keys() if name.startswith(f"{number}.")]  # noqa: SIM118
            yield Reading(tuple(entry["ids"]), target), {_named(name): file.get_tensor(name) for name in names}


def _named(name: str) -> tuple[Place, str]:
    _, stack, layer, part, *step = name.split(".")
    return Place(stack, int(layer), part), ".".join(step)


def _file(number: int) -> str:
    return f"looks-{number:05}.safetensors"
