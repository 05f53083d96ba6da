"""Tensors in safetensors files: everything is checked in the header before anything is mapped, and nothing is copied.

A tensor is handed out as a torch tensor over a private mapping of the file: pages are read when touched,
writing to it never reaches the file. Each tensor is looked through for NaN and infinity as it is handed out.
"""

import json
import math
import mmap
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from peasy.checkpoint.folder import MEBIBYTE, Folder, parse_json, short
from peasy.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    import torch

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD_BYTES = 4 * 1024 * MEBIBYTE
HEADER_LIMIT = 10 * MEBIBYTE
"""A header of this size names about a hundred thousand tensors."""

DTYPES = {
    "F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2),
    "I64": ("int64", 8), "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}  # fmt: skip
"""The name in the file: torch's name and the bytes of one element."""

_MOST_AXES = 8


@dataclass(frozen=True)
class TensorInfo:
    """What the header says of one tensor; `start` counts from the beginning of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    bytes: int

    @property
    def count(self) -> int:
        """How many numbers."""
        return math.prod(self.shape)


class TensorFile:
    """One safetensors file of a folder, with a header that was checked in full."""

    def __init__(self, folder: Folder, name: str = WEIGHTS) -> None:
        self.where = str(folder.path / name)
        with folder.open(name) as file:
            size = os.fstat(file.fileno()).st_size
            self.info, self.metadata = _read_header(file, size, self.where)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def tensor(self, name: str) -> "torch.Tensor":
        """The tensor of this name over the mapped file, refused if it holds NaN or infinity."""
        import torch

        if name not in self.info:
            raise NotFound(f"{self.where} has no tensor {short(name)}.")
        info = self.info[name]
        dtype = getattr(torch, info.dtype)
        if not info.count:
            return torch.empty(info.shape, dtype=dtype)
        if info.start % dtype.itemsize or sys.byteorder != "little":
            flat = _unaligned(self._map[info.start : info.start + info.bytes], dtype)
        else:
            flat = torch.frombuffer(self._map, dtype=dtype, count=info.count, offset=info.start)
        check_finite(flat, f"{self.where}: tensor {short(name)}")
        return flat.view(info.shape)


class Tensors(Mapping[str, "torch.Tensor"]):
    """All tensors of a folder by name, from one file or several; each is mapped when asked for."""

    def __init__(self, files: Mapping[str, TensorFile]) -> None:
        self._files = dict(files)

    def __getitem__(self, name: str) -> "torch.Tensor":
        return self._files[name].tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def info(self, name: str) -> TensorInfo:
        """Type, shape and size of a tensor, without touching its numbers."""
        return self._files[name].info[name]

    @property
    def bytes(self) -> int:
        """What all tensors weigh."""
        return sum(self.info(name).bytes for name in self)


class HeldTensors(Tensors):
    """Tensors that somebody's program holds: handed out as they are, in the same memory."""

    def __init__(self, held: Mapping[str, "torch.Tensor"]) -> None:
        super().__init__({})
        self._held = dict(held)

    def __getitem__(self, name: str) -> "torch.Tensor":
        check_finite(self._held[name], f"tensor {short(name)}")
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def info(self, name: str) -> TensorInfo:
        """Type, shape and size of a tensor."""
        held = self._held[name]
        return TensorInfo(name, str(held.dtype).removeprefix("torch."), tuple(held.shape), 0, held.nbytes)


def open_tensors(folder: Folder) -> Tensors:
    """The tensors of a folder with `model.safetensors`, or with shards and their index."""
    if folder.has(INDEX):
        return Tensors(_open_shards(folder))
    if folder.has(WEIGHTS):
        file = TensorFile(folder, WEIGHTS)
        return Tensors(dict.fromkeys(file.info, file))
    pickled = [name for name in folder.names() if name.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl"))]
    if pickled:
        raise InvalidInput(
            f"{folder.path} holds its weights as {pickled[0]}: a pickle, which runs code as it is read.",
            hint="Convert it to model.safetensors where you trust it; peasy reads nothing else.",
        )
    raise NotFound(f"{folder.path} has no {WEIGHTS}.")


def write_tensors(
    folder: str | Path,
    tensors: Mapping[str, "torch.Tensor"],
    *,
    metadata: Mapping[str, str] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> list[str]:
    """Write the tensors into an existing folder, in shards with an index when they are large; the names written."""
    from safetensors.torch import save_file

    for name, tensor in tensors.items():
        check_finite(tensor, f"Tensor {short(name)}")
    shards = _shards(tensors, shard_bytes)
    count = len(shards)
    names = [WEIGHTS] if count == 1 else [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    for name, shard in zip(names, shards, strict=True):
        chosen = {key: tensors[key].detach().contiguous() for key in shard}
        save_file(chosen, Path(folder) / name, metadata={"format": "pt", **(metadata or {})})
    if count > 1:
        _write_index(Path(folder) / INDEX, dict(zip(names, shards, strict=True)), tensors)
        names.append(INDEX)
    return names


def check_finite(tensor: "torch.Tensor", what: str) -> None:
    """Refuse a tensor with NaN or infinity in it, without a copy as large as itself.

    A sum is finite only if every term is, so one pass without a temporary says yes; only a doubt is looked into.
    """
    import torch

    if not tensor.is_floating_point():
        return
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    for piece in tensor.detach().reshape(-1).split(1 << 22):
        if not math.isfinite(piece.sum(dtype=wide).item()) and not bool(torch.isfinite(piece).all()):
            raise InvalidInput(f"{what} holds NaN or infinity.", hint="The file is damaged, or training diverged.")


def _unaligned(data: bytes, dtype: "torch.dtype") -> "torch.Tensor":
    import torch

    flat = torch.frombuffer(bytearray(data), dtype=dtype)
    if sys.byteorder == "little" or dtype.itemsize == 1:
        return flat
    return flat.view(torch.uint8).view(-1, dtype.itemsize).flip(1).reshape(-1).view(dtype)


def _read_header(file: BinaryIO, size: int, where: str) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    if size < 8:
        raise InvalidInput(f"{where} is {size} bytes long: too short for a safetensors file.")
    length = int.from_bytes(file.read(8), "little")
    if length > min(HEADER_LIMIT, size - 8):
        most = f"at most {min(HEADER_LIMIT, size - 8):,} can be"
        raise InvalidInput(f"{where} claims a header of {length:,} bytes: {most}.", hint="Is it a safetensors file?")
    table = parse_json(file.read(length), f"{where}: the header")
    if not isinstance(table, dict):
        raise InvalidInput(f"{where}: the header should be a table.")
    metadata = _read_metadata(table.pop("__metadata__", {}), where)
    info = {name: _read_info(name, entry, 8 + length, where) for name, entry in table.items()}
    _check_layout(info, 8 + length, size, where)
    return info, metadata


def _read_metadata(data: Any, where: str) -> dict[str, str]:
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        raise InvalidInput(f"{where}: __metadata__ should be a table of texts.")
    return data


def _read_info(name: str, entry: Any, base: int, where: str) -> TensorInfo:
    what = f"{where}: tensor {short(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise InvalidInput(f"{what} should have exactly dtype, shape and data_offsets.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InvalidInput(f"{what} has dtype {short(dtype)}; known are {', '.join(DTYPES)}.")
    if not _counts(shape) or len(shape) > _MOST_AXES:
        raise InvalidInput(f"{what} has shape {short(shape)}: at most {_MOST_AXES} whole numbers are expected.")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise InvalidInput(f"{what} has data_offsets {short(offsets)}: a start and a later end are expected.")
    torch_name, width = DTYPES[dtype]
    needed, given = math.prod(shape) * width, offsets[1] - offsets[0]
    if needed != given:
        raise InvalidInput(f"{what} of shape {short(shape)} in {dtype} needs {short(needed)} bytes, not {given:,}.")
    return TensorInfo(name, torch_name, tuple(shape), base + offsets[0], given)


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_layout(info: Mapping[str, TensorInfo], start: int, size: int, where: str) -> None:
    """The tensors must fill the file from header to end, one after another: no overlap, no gap, no rest."""
    end = start
    for tensor in sorted(info.values(), key=lambda tensor: (tensor.start, tensor.bytes)):
        if tensor.start != end:
            fault = "overlaps the one before it" if tensor.start < end else "leaves a gap before it"
            raise InvalidInput(f"{where}: tensor {short(tensor.name)} {fault}.")
        end += tensor.bytes
        if end > size:
            missing = f"{end - size:,} bytes are missing"
            raise InvalidInput(f"{where}: tensor {short(tensor.name)} ends after the file does: {missing}.")
    if end != size:
        raise InvalidInput(f"{where}: {size - end:,} bytes after the last tensor belong to none.")


def _open_shards(folder: Folder) -> dict[str, TensorFile]:
    where = folder.path / INDEX
    listed = folder.read_json(INDEX).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
        raise InvalidInput(f"{where}: weight_map should say the file of each tensor.")
    wrong = next((name for name in listed.values() if not name.endswith(".safetensors")), None)
    if wrong is not None:
        raise InvalidInput(f"{where} names the file {short(wrong)}: only .safetensors files are read.")
    files = {name: TensorFile(folder, name) for name in sorted(set(listed.values()))}
    for tensor, name in listed.items():
        if tensor not in files[name].info:
            raise InvalidInput(f"{where} says that {name} holds {short(tensor)}; it does not.")
    for name, file in files.items():
        extra = next((tensor for tensor in file.info if listed.get(tensor) != name), None)
        if extra is not None:
            raise InvalidInput(f"{file.where} holds {short(extra)}, which {INDEX} does not list there.")
    return {tensor: files[name] for tensor, name in listed.items()}


def _shards(tensors: Mapping[str, "torch.Tensor"], most: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    weight = 0
    for name, tensor in tensors.items():
        weight += tensor.nbytes
        if weight > most and shards[-1]:
            shards.append([])
            weight = tensor.nbytes
        shards[-1].append(name)
    return shards


def _write_index(path: Path, shards: Mapping[str, list[str]], tensors: Mapping[str, "torch.Tensor"]) -> None:
    total = sum(tensor.nbytes for tensor in tensors.values())
    files = {tensor: name for name, shard in shards.items() for tensor in shard}
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(files.items()))}
    path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
