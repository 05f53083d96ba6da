"""Load a Hugging Face folder: detect the family, check weights against config.json, map them to peasy's names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path

import torch
from torch import Tensor

from peasy.checkpoint import ram
from peasy.checkpoint.huggingface.family import ModelFamily, StoredWeights
from peasy.checkpoint.huggingface.fields import ConfigFields
from peasy.checkpoint.huggingface.registry import detect_family, match_weights, read_hf_config
from peasy.checkpoint.huggingface.sentence_transformers import read_pooling
from peasy.checkpoint.huggingface.weight_map import TensorPair, WeightMap, import_weights, match_pattern
from peasy.checkpoint.safe_folder import SafeFolder, join_names
from peasy.checkpoint.store import CONFIG_FILE
from peasy.checkpoint.tensors import TensorStore, open_tensors
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.config import ModelConfig
from peasy.models.protocol import Model


@dataclass(frozen=True, eq=False)
class HFCheckpoint:
    """A Hugging Face checkpoint with checked names and shapes; weights are read only when `tensors` is accessed.

    `unused` are stored weights that peasy has no use for; `stored_names` maps each expected weight to its stored name.
    """

    folder: SafeFolder
    family: str
    config: ModelConfig
    unused: tuple[str, ...]
    pairs: Sequence[TensorPair]
    stored_weights: StoredWeights
    stored_names: Mapping[str, str]

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Weights by peasy's names, as views of the mapped file; too little memory, NaN or infinity is an error."""
        ram.require_ram(self.nbytes, str(self.folder.path))
        return import_weights(
            self.pairs, {name: self.stored_weights[source] for name, source in self.stored_names.items()}
        )

    @property
    def nbytes(self) -> int:
        """Size of the weights in bytes."""
        return sum(self.stored_weights.info(source).nbytes for source in self.stored_names.values())


def read_folder(
    folder: str | Path, *, ignore_fields: Iterable[str] = (), tensors: TensorStore | None = None
) -> HFCheckpoint:
    """Read config.json and check the names and shapes of all weights against it.

    `ignore_fields` lists fields of config.json that peasy does not know and that are known to have no effect. `tensors`
    are the weights if the folder has only config.json.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.checkpoint.huggingface import write_folder
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> config = preset("gpt-tiny")
    >>> with TemporaryDirectory() as home:
    ...     checkpoint = read_folder(write_folder(f"{home}/out", config, build(config).state_dict()))
    >>> checkpoint.family, checkpoint.config.stack == config.stack
    ('arcee', True)
    """
    safe_folder = SafeFolder(folder)
    where = str(safe_folder.path / CONFIG_FILE)
    data = safe_folder.read_json(CONFIG_FILE)
    family = detect_family(data, where)
    stored = StoredWeights(open_tensors(safe_folder) if tensors is None else tensors, family.prefix)
    fields = ConfigFields(data, where)
    fields.ignore(ignore_fields)
    config = read_pooling(safe_folder, read_hf_config(family, fields, stored))
    pairs, expected = match_weights(family, config, where)
    sources, unused = _match_weights(stored, family.weight_map(config), expected, family)
    return HFCheckpoint(safe_folder, family.name, config, unused, pairs, stored, sources)


def load_model(checkpoint: HFCheckpoint) -> Model:
    """Return the model in eval mode over the mapped weights; nothing is copied.

    Exception: if a file mixes dtypes, all weights are converted to the widest.
    """
    model = build(checkpoint.config, seed=None)
    widest = reduce(torch.promote_types, {tensor.dtype for tensor in checkpoint.tensors.values()})
    weights = {name: tensor.to(widest) for name, tensor in checkpoint.tensors.items()}
    model.load_state_dict(weights, strict=True, assign=True)
    return model.eval()


def _match_weights(
    stored_weights: StoredWeights, weight_map: WeightMap, expected: Mapping[str, Tensor], family: ModelFamily
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the stored name of each expected tensor, and the unused names; other mismatches are errors."""
    copies = {copy: original for copy, original in weight_map.tied_copies.items() if copy not in expected}
    sources = {name: _stored_name(name, stored_weights, copies) for name in expected}
    missing = [name for name, source in sources.items() if source is None]
    known = set(sources.values()) | set(copies)
    extra = [
        name
        for name in stored_weights
        if name not in known and not _matches_any(name, weight_map.derived_buffers + weight_map.unused)
    ]
    for names, problem in ((missing, "is missing the weights"), (extra, "has unexpected weights")):
        if names:
            hint = "Its config.json and its weights do not match, or parts of the model are not supported."
            raise InvalidInput(f"This {family.name} checkpoint {problem} {join_names(names)}.", hint=hint)
    stored_names = {name: source for name, source in sources.items() if source is not None}
    for name, source in stored_names.items():
        _check_shape(stored_weights, source, expected[name])
    for copy, original in copies.items():
        if stored_weights.differ(copy, original):
            raise InvalidInput(f"{copy} should equal {original}, but differs.")
    unused = tuple(name for name in stored_weights if _matches_any(name, weight_map.unused) and name not in known)
    return stored_names, unused


def _stored_name(name: str, stored_weights: StoredWeights, copies: Mapping[str, str]) -> str | None:
    if name in stored_weights:
        return name
    return next((copy for copy, original in copies.items() if original == name and copy in stored_weights), None)


def _check_shape(stored_weights: StoredWeights, name: str, expected: Tensor) -> None:
    info = stored_weights.info(name)
    if info.shape != tuple(expected.shape):
        raise InvalidInput(
            f"{name} has shape {list(info.shape)}; config.json requires {list(expected.shape)}.",
            hint="Its config.json and its weights do not match.",
        )
    if not info.dtype.startswith(("float", "bfloat")):
        raise InvalidInput(f"{name} has dtype {info.dtype}; weights must be floating-point.")


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(match_pattern(pattern, name) is not None for pattern in patterns)
