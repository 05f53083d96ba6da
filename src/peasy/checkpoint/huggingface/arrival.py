"""Load a Hugging Face folder: detect the family, check weights against config.json, map them to peasy's names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path

import torch
from torch import Tensor

from peasy.checkpoint import memory
from peasy.checkpoint.folder import Folder
from peasy.checkpoint.huggingface.family import Family, Stored
from peasy.checkpoint.huggingface.fields import Fields
from peasy.checkpoint.huggingface.registry import match, read_settings, recognise
from peasy.checkpoint.huggingface.rule import Pair, Table, bring_in, matches
from peasy.checkpoint.huggingface.sentence import read_pooling
from peasy.checkpoint.store import CONFIG
from peasy.checkpoint.tensors import Tensors, open_tensors
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.config import Config
from peasy.models.protocol import Model

_SHOWN = 6
"""Names listed in an error; the rest is counted."""


@dataclass(frozen=True, eq=False)
class Arrival:
    """A Hugging Face checkpoint with checked names and shapes; weights are read only when `tensors` is accessed.

    `unused` are stored weights that peasy has no use for; `sources` maps each expected weight to its stored name.
    """

    folder: Folder
    family: str
    config: Config
    unused: tuple[str, ...]
    pairs: Sequence[Pair]
    stored: Stored
    sources: Mapping[str, str]

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Weights by peasy's names, as views of the mapped file; too little memory, NaN or infinity is an error."""
        memory.require(self.bytes, str(self.folder.path))
        return bring_in(self.pairs, {name: self.stored[source] for name, source in self.sources.items()})

    @property
    def bytes(self) -> int:
        """Size of the weights in bytes."""
        return sum(self.stored.info(source).bytes for source in self.sources.values())


def read_folder(folder: str | Path, *, ignore: Iterable[str] = (), tensors: Tensors | None = None) -> Arrival:
    """Read config.json and check the names and shapes of all weights against it.

    `ignore` lists fields of config.json that peasy does not know and that are known to have no effect. `tensors`
    are the weights if the folder has only config.json.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.checkpoint.huggingface import write_folder
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> config = preset("gpt-tiny")
    >>> with TemporaryDirectory() as home:
    ...     arrival = read_folder(write_folder(f"{home}/out", config, build(config).state_dict()))
    >>> arrival.family, arrival.config.stack == config.stack
    ('arcee', True)
    """
    safe_folder = Folder(folder)
    where = str(safe_folder.path / CONFIG)
    data = safe_folder.read_json(CONFIG)
    family = recognise(data, where)
    stored = Stored(open_tensors(safe_folder) if tensors is None else tensors, family.prefix)
    fields = Fields(data, where)
    fields.ignore(ignore)
    config = read_pooling(safe_folder, read_settings(family, fields, stored))
    pairs, expected = match(family, config, where)
    sources, unused = _check(stored, family.table(config), expected, family)
    return Arrival(safe_folder, family.name, config, unused, pairs, stored, sources)


def load_model(arrival: Arrival) -> Model:
    """Return the model in eval mode over the mapped weights; nothing is copied.

    Exception: if a file mixes dtypes, all weights are converted to the widest.
    """
    model = build(arrival.config, seed=None)
    widest = reduce(torch.promote_types, {tensor.dtype for tensor in arrival.tensors.values()})
    weights = {name: tensor.to(widest) for name, tensor in arrival.tensors.items()}
    model.load_state_dict(weights, strict=True, assign=True)
    return model.eval()


def _check(
    stored: Stored, table: Table, expected: Mapping[str, Tensor], family: Family
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the stored name of each expected tensor, and the unused names; other mismatches are errors."""
    copies = {copy: original for copy, original in table.copies.items() if copy not in expected}
    sources = {name: _source(name, stored, copies) for name in expected}
    missing = [name for name, source in sources.items() if source is None]
    known = set(sources.values()) | set(copies)
    extra = [name for name in stored if name not in known and not _listed(name, table.computed + table.unused)]
    for names, problem in ((missing, "is missing the weights"), (extra, "has unexpected weights")):
        if names:
            hint = "Its config.json and its weights do not match, or parts of the model are not supported."
            raise InvalidInput(f"This {family.name} checkpoint {problem} {_several(names)}.", hint=hint)
    stored_names = {name: source for name, source in sources.items() if source is not None}
    for name, source in stored_names.items():
        _check_shape(stored, source, expected[name])
    for copy, original in copies.items():
        if stored.differ(copy, original):
            raise InvalidInput(f"{copy} should equal {original}, but differs.")
    unused = tuple(name for name in stored if _listed(name, table.unused) and name not in known)
    return stored_names, unused


def _source(name: str, stored: Stored, copies: Mapping[str, str]) -> str | None:
    if name in stored:
        return name
    return next((copy for copy, original in copies.items() if original == name and copy in stored), None)


def _check_shape(stored: Stored, name: str, expected: Tensor) -> None:
    info = stored.info(name)
    if info.shape != tuple(expected.shape):
        raise InvalidInput(
            f"{name} has shape {list(info.shape)}; config.json requires {list(expected.shape)}.",
            hint="Its config.json and its weights do not match.",
        )
    if not info.dtype.startswith(("float", "bfloat")):
        raise InvalidInput(f"{name} has dtype {info.dtype}; weights must be floating-point.")


def _listed(name: str, patterns: Iterable[str]) -> bool:
    return any(matches(pattern, name) is not None for pattern in patterns)


def _several(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(name[:120] for name in names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
