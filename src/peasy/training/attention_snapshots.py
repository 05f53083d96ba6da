"""Attention snapshots: attention weights of one fixed sentence, recorded at checkpoints of a run."""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from peasy.atomic import disk_errors, write_atomic
from peasy.models.protocol import Model
from peasy.nn.tap import Activation, Tap
from peasy.parameters import Record

SNAPSHOT_FOLDER, METADATA_KEY = "attention", "about"


class TrackedSentence(Record):
    """Tracked sentence: token ids and readable tokens; for a translator also those of its source."""

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    source: tuple[int, ...] = ()
    source_pieces: tuple[str, ...] = ()


class AttentionSnapshot(Record):
    """Attention weights `[head, query, key]` by module path ("decoder.0.attention"), after `step` training steps."""

    step: int
    sentence: TrackedSentence
    weights: dict[str, Tensor]


def attention_weights(model: Model, sentence: TrackedSentence) -> dict[str, Tensor]:
    """Return the attention weights of every layer and head; an empty dict for a model without attention."""
    weights: dict[str, Tensor] = {}

    def capture(activation: Activation) -> None:
        path = activation.path
        weights[f"{path.stack}.{path.layer}.{path.part}"] = activation.array[0].half()

    ids = torch.tensor([sentence.ids], device=model.device)
    source = torch.tensor([sentence.source], device=model.device) if sentence.source else None
    with torch.inference_mode():
        model.hidden(ids, tap=Tap(capture, steps=["weights"]), source=source)
    return {name: array.cpu().contiguous() for name, array in weights.items()}


def write_snapshot(
    run: Path, step: int, model: Model, sentence: TrackedSentence, *, stopped: bool = False
) -> Path | None:
    """Write the attention weights to the run folder; a file of the same step is replaced atomically.

    A snapshot taken because the run was `stopped` is deleted on resume.
    """
    path = run / SNAPSHOT_FOLDER / f"step-{step:06}.safetensors"
    if stopped and path.exists():
        return path
    weights = attention_weights(model, sentence)
    if not weights:
        return None
    path = path.with_name(path.name.replace("step", "stop")) if stopped else path
    with disk_errors(path.parent):
        path.parent.mkdir(exist_ok=True)
    # one key: safetensors does not keep the order of keys
    metadata = json.dumps({"step": step, "sentence": asdict(sentence)})
    return write_atomic(path, save(weights, metadata={METADATA_KEY: metadata}))


def read_snapshots(run: Path) -> list[AttentionSnapshot]:
    """Read all snapshots of a run, in the order of steps."""
    snapshots = []
    for path in find_snapshots(run):
        with safe_open(path, framework="pt") as file:
            about = json.loads(file.metadata()[METADATA_KEY])
            sentence = TrackedSentence(**{key: tuple(value) for key, value in about["sentence"].items()})
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            snapshots.append(AttentionSnapshot(about["step"], sentence, weights))
    return snapshots


def find_snapshots(run: Path) -> list[Path]:
    """Return the snapshot files, in the order of steps."""
    return sorted((run / SNAPSHOT_FOLDER).glob("st[eo]p-*.safetensors"), key=lambda path: path.name.partition("-")[2])


def trim_snapshots(run: Path, step: int) -> None:
    """Delete the snapshots after `step`, which will be written again, and those of an interruption."""
    for path in (run / SNAPSHOT_FOLDER).glob("*.safetensors*"):
        number = path.name.removeprefix("step-").partition(".")[0]
        if not number.isdigit() or int(number) > step:
            path.unlink()
