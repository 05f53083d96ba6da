"""What was seen of a whole data set, streamed to disk in shards of safetensors, one whenever the budget is reached."""

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
    """A folder of shards: how many texts and files, and how many bytes of arrays."""

    folder: Path
    texts: int
    files: int
    bytes: int


def stream_looks(
    model: Model, readings: Iterable[Reading], question: Question, folder: str | Path, *,
    budget: int, storage: str = "float16", edit: Edit | None = None, said: tuple[str, ...] = (),
) -> Kept:  # fmt: skip
    """Look at every text and write what was asked for; never more than `budget` bytes are held at once.

    The folder appears when all is written, or not at all. A text that alone would not fit is refused before it runs.
    """
    parts, widths = parts_of(model), widths_of(model)
    question.check("This model", parts, widths)
    with committed(folder) as place:
        writer = _Writer(place, budget)
        for reading in readings:
            check_reading(model, reading)
            lengths = reading.lengths(model)
            numbers = question.numbers(parts, widths, lengths)
            choose_storage(numbers, budget, storage)
            writer.make_room(numbers * (2 if storage == "float16" else 4))
            recorder = Recorder(question, lengths, storage)
            (read if "logits" in question.steps else run)(model, reading, recorder.tap(), edit)
            writer.add(reading, recorder.captures())
        return writer.finish(Path(folder), question, storage, said)


class _Writer:
    """Arrays that wait for their shard."""

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
        for one in captures:
            name = f"{number}.{one.place.stack}.{one.place.layer}.{one.place.part}.{one.step}"
            self.waiting[name] = np.ascontiguousarray(one.array)
            if one.sizes is not None:
                self.waiting[f"{name}.sizes"] = np.ascontiguousarray(one.sizes)
            self.held += one.array.nbytes

    def flush(self) -> None:
        save_file(self.waiting, self.place / _file(self.files))
        self.files, self.bytes = self.files + 1, self.bytes + self.held
        self.waiting, self.held = {}, 0

    def finish(self, folder: Path, question: Question, storage: str, said: tuple[str, ...]) -> Kept:
        if self.waiting:
            self.flush()
        if not self.texts:
            raise InvalidInput("There is not one text to look at.")
        asked = {"steps": question.steps, "layers": question.layers, "heads": question.heads, "rows": question.rows}
        told = {"texts": self.texts, "asked": asked, "storage": storage, "edits": said}
        (self.place / INDEX).write_text(json.dumps(told), encoding="utf-8")
        return Kept(folder, len(self.texts), self.files, self.bytes)


def read_looks(folder: str | Path) -> Iterator[tuple[Reading, dict[tuple[Place, str], np.ndarray]]]:
    """Every text of a folder of shards with its arrays, one text at a time."""
    folder = Path(folder)
    if not (folder / INDEX).is_file():
        raise NotFound(f"{folder} holds no looks: there is no {INDEX}.")
    told = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    for number, text in enumerate(told["texts"]):
        target = None if text["target"] is None else tuple(text["target"])
        with safe_open(folder / _file(text["file"]), framework="np") as file:
            names = [name for name in file.keys() if name.startswith(f"{number}.")]  # noqa: SIM118
            yield Reading(tuple(text["ids"]), target), {_named(name): file.get_tensor(name) for name in names}


def _named(name: str) -> tuple[Place, str]:
    _, stack, layer, part, *step = name.split(".")
    return Place(stack, int(layer), part), ".".join(step)


def _file(number: int) -> str:
    return f"looks-{number:05}.safetensors"
