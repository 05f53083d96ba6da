"""A Hugging Face folder coming in: recognised, checked against its own settings, then mapped under our names."""

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
"""So many names stand in an error; the rest is counted."""


@dataclass(frozen=True, eq=False)
class Arrival:
    """What a folder holds, checked as far as names and shapes go; no number is read before `tensors` are asked for.

    `unused` are stored weights that have no place here; `sources` says under which name each expected one is stored.
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
        """The weights under our names, over the mapped file; refused if there is no room or a number is not finite."""
        memory.require(self.bytes, str(self.folder.path))
        return bring_in(self.pairs, {name: self.stored[source] for name, source in self.sources.items()})

    @property
    def bytes(self) -> int:
        """What the weights weigh."""
        return sum(self.stored.info(source).bytes for source in self.sources.values())


def read_folder(folder: str | Path, *, ignore: Iterable[str] = (), tensors: Tensors | None = None) -> Arrival:
    """Read a Hugging Face folder: its settings, and all names and shapes of its weights against them.

    `ignore` names settings of config.json that peasy does not know and that are known to change nothing. `tensors`
    are the weights where the folder has only the settings.

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
    place = Folder(folder)
    where = str(place.path / CONFIG)
    data = place.read_json(CONFIG)
    family = recognise(data, where)
    stored = Stored(open_tensors(place) if tensors is None else tensors, family.prefix)
    fields = Fields(data, where)
    fields.ignore(ignore)
    config = read_pooling(place, read_settings(family, fields, stored))
    pairs, expected = match(family, config, where)
    sources, unused = _check(stored, family.table(config), expected, family)
    return Arrival(place, family.name, config, unused, pairs, stored, sources)


def load_model(arrival: Arrival) -> Model:
    """The model over the mapped weights, ready to run: nothing is copied.

    Only where a file mixes kinds of numbers, those that are shorter become as long as the longest.
    """
    model = build(arrival.config, seed=None)
    widest = reduce(torch.promote_types, {tensor.dtype for tensor in arrival.tensors.values()})
    weights = {name: tensor.to(widest) for name, tensor in arrival.tensors.items()}
    model.load_state_dict(weights, strict=True, assign=True)
    return model.eval()


def _check(
    stored: Stored, table: Table, expected: Mapping[str, Tensor], family: Family
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Where each expected tensor lies, and what has no place; what is missing, left over or misshaped is refused."""
    copies = {copy: original for copy, original in table.copies.items() if copy not in expected}
    sources = {name: _source(name, stored, copies) for name in expected}
    missing = [name for name, source in sources.items() if source is None]
    known = set(sources.values()) | set(copies)
    extra = [name for name in stored if name not in known and not _listed(name, table.computed + table.unused)]
    for names, said in ((missing, "does not hold"), (extra, "also holds")):
        if names:
            hint = "Its config.json and its weights do not belong together, or parts of it are not supported."
            raise InvalidInput(f"This {family.name} checkpoint {said} {_several(names)}.", hint=hint)
    found = {name: source for name, source in sources.items() if source is not None}
    for name, source in found.items():
        _check_shape(stored, source, expected[name])
    for copy, original in copies.items():
        if stored.differ(copy, original):
            raise InvalidInput(f"{copy} should hold the same numbers as {original}, and does not.")
    unused = tuple(name for name in stored if _listed(name, table.unused) and name not in known)
    return found, unused


def _source(name: str, stored: Stored, copies: Mapping[str, str]) -> str | None:
    if name in stored:
        return name
    return next((copy for copy, original in copies.items() if original == name and copy in stored), None)


def _check_shape(stored: Stored, name: str, expected: Tensor) -> None:
    info = stored.info(name)
    if info.shape != tuple(expected.shape):
        raise InvalidInput(
            f"{name} has the shape {list(info.shape)}; config.json makes it {list(expected.shape)}.",
            hint="Its config.json and its weights do not belong together.",
        )
    if not info.dtype.startswith(("float", "bfloat")):
        raise InvalidInput(f"{name} holds {info.dtype}; weights are floating-point numbers.")


def _listed(name: str, patterns: Iterable[str]) -> bool:
    return any(matches(pattern, name) is not None for pattern in patterns)


def _several(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(name[:120] for name in names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
