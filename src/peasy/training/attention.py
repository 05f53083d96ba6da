"""Attention of one fixed sentence, recorded at checkpoints, so that it can be watched forming."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from peasy.models.protocol import Model
from peasy.nn.tap import Seen, Tap

FOLDER, ABOUT = "attention", "about"


@dataclass(frozen=True)
class Sentence:
    """The sentence that is watched: its ids and readable pieces; for a translator also those of its source."""

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    source: tuple[int, ...] = ()
    source_pieces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """Weights `[head, query, key]` by place ("decoder.0.attention"), after so many steps."""

    step: int
    sentence: Sentence
    weights: dict[str, Tensor]


def look(model: Model, sentence: Sentence) -> dict[str, Tensor]:
    """The attention weights of every layer and head; nothing for a model that has no attention."""
    found: dict[str, Tensor] = {}

    def keep(seen: Seen) -> None:
        place = seen.place
        found[f"{place.stack}.{place.layer}.{place.part}"] = seen.array[0].half()

    there = model.device
    source: dict[str, Any] = {"source": torch.tensor([sentence.source], device=there)} if sentence.source else {}
    with torch.inference_mode():
        model.hidden(torch.tensor([sentence.ids], device=there), tap=Tap(keep, steps=["weights"]), **source)
    return {name: weights.cpu().contiguous() for name, weights in found.items()}


def record(run: Path, step: int, model: Model, sentence: Sentence, *, stopped: bool = False) -> Path | None:
    """Write what `look` finds beside the run's checkpoints; a file of the same step is replaced in one move.

    What a run shows because it was `stopped` is forgotten when it goes on, as if it had never stopped.
    """
    path = run / FOLDER / f"step-{step:06}.safetensors"
    if stopped and path.exists():
        return path
    weights = look(model, sentence)
    if not weights:
        return None
    path = path.with_name(path.name.replace("step", "stop")) if stopped else path
    path.parent.mkdir(exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    told = json.dumps({"step": step, "sentence": asdict(sentence)})  # under one key: the library shuffles keys
    part.write_bytes(save(weights, metadata={ABOUT: told}))
    os.replace(part, path)
    return path


def read_records(run: Path) -> list[Record]:
    """All that was recorded in a run, first step first."""
    return [_read(path) for path in find_records(run)]


def find_records(run: Path) -> list[Path]:
    """The files, first step first."""
    return sorted((run / FOLDER).glob("st[eo]p-*.safetensors"), key=lambda path: path.name.partition("-")[2])


def trim_records(run: Path, step: int) -> None:
    """Drop what was recorded after `step`, which the run will record again, and what it showed when it was stopped."""
    for path in (run / FOLDER).glob("*.safetensors*"):
        number = path.name.removeprefix("step-").partition(".")[0]
        if not number.isdigit() or int(number) > step:
            path.unlink()


def _read(path: Path) -> Record:
    with safe_open(path, framework="pt") as file:
        told = json.loads(file.metadata()[ABOUT])
        sentence = Sentence(**{key: tuple(value) for key, value in told["sentence"].items()})
        return Record(told["step"], sentence, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
