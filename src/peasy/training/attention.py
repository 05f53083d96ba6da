"""Attention snapshots: attention weights of one fixed sentence, recorded at checkpoints of a run."""

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
    """Tracked sentence: token ids and readable tokens; for a translator also those of its source."""

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    source: tuple[int, ...] = ()
    source_pieces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """Attention weights `[head, query, key]` by module path ("decoder.0.attention"), after `step` training steps."""

    step: int
    sentence: Sentence
    weights: dict[str, Tensor]


def look(model: Model, sentence: Sentence) -> dict[str, Tensor]:
    """Return the attention weights of every layer and head; an empty dict for a model without attention."""
    weights: dict[str, Tensor] = {}

    def capture(activation: Seen) -> None:
        path = activation.place
        weights[f"{path.stack}.{path.layer}.{path.part}"] = activation.array[0].half()

    device = model.device
    source: dict[str, Any] = {"source": torch.tensor([sentence.source], device=device)} if sentence.source else {}
    with torch.inference_mode():
        model.hidden(torch.tensor([sentence.ids], device=device), tap=Tap(capture, steps=["weights"]), **source)
    return {name: array.cpu().contiguous() for name, array in weights.items()}


def record(run: Path, step: int, model: Model, sentence: Sentence, *, stopped: bool = False) -> Path | None:
    """Write the attention weights to the run folder; a file of the same step is replaced atomically.

    A snapshot taken because the run was `stopped` is deleted on resume.
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
    metadata = json.dumps(
        {"step": step, "sentence": asdict(sentence)}
    )  # one key: safetensors does not keep the order of keys
    part.write_bytes(save(weights, metadata={ABOUT: metadata}))
    os.replace(part, path)
    return path


def read_records(run: Path) -> list[Record]:
    """Read all snapshots of a run, in the order of steps."""
    return [_read(path) for path in find_records(run)]


def find_records(run: Path) -> list[Path]:
    """Return the snapshot files, in the order of steps."""
    return sorted((run / FOLDER).glob("st[eo]p-*.safetensors"), key=lambda path: path.name.partition("-")[2])


def trim_records(run: Path, step: int) -> None:
    """Delete the snapshots after `step`, which will be written again, and those of an interruption."""
    for path in (run / FOLDER).glob("*.safetensors*"):
        number = path.name.removeprefix("step-").partition(".")[0]
        if not number.isdigit() or int(number) > step:
            path.unlink()


def _read(path: Path) -> Record:
    with safe_open(path, framework="pt") as file:
        metadata = json.loads(file.metadata()[ABOUT])
        sentence = Sentence(**{key: tuple(value) for key, value in metadata["sentence"].items()})
        return Record(metadata["step"], sentence, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
