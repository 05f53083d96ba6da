"""Safetensors files: the header is validated before the file is memory-mapped; nothing is copied.

A tensor is a view of a private (copy-on-write) mapping: pages are read when touched, writes never reach the file.
Each tensor is checked for NaN and infinity when it is accessed.
"""

import math
import mmap
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from peasy.checkpoint.safe_folder import MIB, SafeFolder, hint_for_folder, short_repr, write_json
from peasy.config import parse_json
from peasy.errors import InvalidInput, NotFound
from peasy.parameters import Record

if TYPE_CHECKING:
    import torch

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
SHARD_BYTES = 4 * 1024 * MIB
MAX_HEADER_BYTES = 10 * MIB
"""Enough for about a hundred thousand tensors."""

DTYPES = {
    "F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2),
    "I64": ("int64", 8), "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}  # fmt: skip
"""Safetensors dtype: (torch dtype, bytes per element)."""

_MAX_DIMS = 8


class TensorInfo(Record):
    """Header entry of one tensor; `offset` is the byte offset in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class TensorFile:
    """One memory-mapped safetensors file with a validated header."""

    def __init__(self, folder: SafeFolder, name: str = WEIGHTS_FILE) -> None:
        self.path = str(folder.path / name)
        with folder.open(name) as file:
            size = os.fstat(file.fileno()).st_size
            self.info, self.metadata = _read_header(file, size, self.path)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def tensor(self, name: str) -> "torch.Tensor":
        """Return a tensor as a view of the mapped file; NaN or infinity is an error."""
        import torch

        if name not in self.info:
            raise NotFound(f"{self.path} has no tensor {short_repr(name)}.")
        info = self.info[name]
        dtype = getattr(torch, info.dtype)
        if not info.nbytes:
            return torch.empty(info.shape, dtype=dtype)
        if info.offset % dtype.itemsize or sys.byteorder != "little":
            flat = _copy_unaligned(self._map[info.offset : info.offset + info.nbytes], dtype)
        else:
            flat = torch.frombuffer(self._map, dtype=dtype, count=info.nbytes // dtype.itemsize, offset=info.offset)
        check_finite(flat, name, f"{self.path}: tensor ")
        return flat.view(info.shape)


class InMemoryTensors:
    """Tensors in memory, read like a file; nothing is copied."""

    def __init__(self, tensors: Mapping[str, "torch.Tensor"]) -> None:
        self._tensors = dict(tensors)
        self.info = {
            name: TensorInfo(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), 0, tensor.nbytes)
            for name, tensor in tensors.items()
        }

    def tensor(self, name: str) -> "torch.Tensor":
        """Return a tensor; NaN or infinity is an error."""
        check_finite(self._tensors[name], name)
        return self._tensors[name]


class TensorStore(Mapping[str, "torch.Tensor"]):
    """Lazy mapping from name to tensor: for each name, the file that holds it and its name there."""

    def __init__(self, stored: Mapping[str, tuple[TensorFile | InMemoryTensors, str]]) -> None:
        self._stored = dict(stored)

    def renamed(self, old_names: Mapping[str, str]) -> "TensorStore":
        """Return the tensors under new names; `old_names` maps each new name to the present one."""
        return TensorStore({name: self._stored[old] for name, old in old_names.items()})

    def __or__(self, other: "TensorStore") -> "TensorStore":
        return TensorStore(self._stored | other._stored)

    def __getitem__(self, name: str) -> "torch.Tensor":
        file, stored_name = self._stored[name]
        return file.tensor(stored_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, name: object) -> bool:
        return name in self._stored  # the default of Mapping would read the tensor

    def info(self, name: str) -> TensorInfo:
        """Return dtype, shape and size of a tensor without reading its data."""
        file, stored_name = self._stored[name]
        return file.info[stored_name]

    def differ(self, first: str, second: str) -> bool:
        """Return whether both are stored with different values."""
        import torch

        if first not in self or second not in self:
            return False
        return self.info(first).shape != self.info(second).shape or not torch.equal(self[first], self[second])

    @property
    def nbytes(self) -> int:
        """Total size of all tensors in bytes."""
        return sum(self.info(name).nbytes for name in self)


_CONVERSION_HINT = "If you trust it, convert it in Python; weights_only refuses code, but peasy reads no pickle at all:"
_CONVERSION = """import pathlib, torch
from safetensors.torch import save_file
folder = pathlib.Path({folder!r})
parts = [torch.load(file, map_location="cpu", weights_only=True) for file in sorted(folder.glob({files!r}))]
parts = [part.get("state_dict", part) for part in parts]
parts = [{{name.removeprefix("module."): tensor for name, tensor in part.items()}} for part in parts]
weights = {{name: tensor.clone().contiguous() for part in parts for name, tensor in part.items()}}
save_file(weights, folder / "model.safetensors", metadata={{"format": "pt"}})"""


def open_tensors(folder: SafeFolder) -> TensorStore:
    """Open `model.safetensors`, or the shards that the index file lists."""
    if folder.has(INDEX_FILE):
        return _open_shards(folder)
    if folder.has(WEIGHTS_FILE):
        file = TensorFile(folder, WEIGHTS_FILE)
        return TensorStore({name: (file, name) for name in file.info})
    names = [name for name in os.listdir(folder.path) if name.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl"))]
    if names:  # beside the weights, a trainer leaves its state: optimizer.pt, training_args.bin
        first = min(names, key=lambda name: (not name.startswith("pytorch_model"), name))
        message = f"{folder.path} stores its weights in {first}: a pickle file, which can run code when it is loaded."
        files = "pytorch_model*.bin" if first.startswith("pytorch_model") else first
        script = _CONVERSION.format(folder=str(folder.path), files=files)
        raise InvalidInput(message, hint=_CONVERSION_HINT, script=script)
    raise NotFound(f"{folder.path} has no {WEIGHTS_FILE}.", hint=hint_for_folder(folder.path))


def write_tensors(
    folder: str | Path, tensors: Mapping[str, "torch.Tensor"], *, shard_bytes: int = SHARD_BYTES
) -> list[str]:
    """Write tensors into an existing folder, in shards with an index if they are large; return the file names."""
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    for name, tensor in tensors.items():
        check_finite(tensor, name)
    split = split_torch_state_dict_into_shards(dict(tensors), max_shard_size=shard_bytes)
    for name, shard in split.filename_to_tensors.items():
        contents = {key: tensors[key].detach().contiguous() for key in shard}
        save_file(contents, Path(folder) / name, metadata={"format": "pt"})
    if not split.is_sharded:
        return [WEIGHTS_FILE]
    index = {"metadata": split.metadata, "weight_map": dict(sorted(split.tensor_to_filename.items()))}
    write_json(Path(folder) / INDEX_FILE, index)
    return [*split.filename_to_tensors, INDEX_FILE]


def check_finite(tensor: "torch.Tensor", name: str, subject: str = "Tensor ") -> None:
    """Raise InvalidInput if a tensor has NaN or infinity, or would have as float32, without a temporary of its size.

    A finite sum proves that every term is finite; only chunks whose sum is not are checked element by element.
    """
    import torch

    if not tensor.is_floating_point():
        return
    for chunk in tensor.detach().reshape(-1).split(1 << 22):
        if not math.isfinite(chunk.sum(dtype=torch.float32).item()) and not bool(torch.isfinite(chunk.float()).all()):
            hint = "The file is damaged, or training diverged."
            raise InvalidInput(f"{subject}{short_repr(name)} contains NaN or infinity.", hint=hint)


def _copy_unaligned(data: bytes, dtype: "torch.dtype") -> "torch.Tensor":
    import torch

    flat = torch.frombuffer(bytearray(data), dtype=dtype)
    if sys.byteorder == "little" or dtype.itemsize == 1:
        return flat
    return flat.view(torch.uint8).view(-1, dtype.itemsize).flip(1).reshape(-1).view(dtype)


def _read_header(file: BinaryIO, size: int, where: str) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    if size < 8:
        raise InvalidInput(f"{where} is {size} bytes long: too short for a safetensors file.")
    length = int.from_bytes(file.read(8), "little")
    if length > min(MAX_HEADER_BYTES, size - 8):
        maximum = f"the maximum is {min(MAX_HEADER_BYTES, size - 8):,}"
        raise InvalidInput(f"{where} claims a header of {length:,} bytes; {maximum}.", hint="Is it a safetensors file?")
    table = parse_json(file.read(length), f"{where}: the header")
    if not isinstance(table, dict):
        raise InvalidInput(f"{where}: the header should be a JSON object.")
    metadata = table.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InvalidInput(f"{where}: __metadata__ should be a JSON object with string values.")
    info = {name: _read_info(name, entry, 8 + length, where) for name, entry in table.items()}
    _check_layout(info, 8 + length, size, where)
    return info, metadata


def _read_info(name: str, entry: object, data_start: int, where: str) -> TensorInfo:
    def invalid(problem: str) -> InvalidInput:
        return InvalidInput(f"{where}: tensor {short_repr(name)} {problem}")

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise invalid("should have exactly dtype, shape and data_offsets.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise invalid(f"has dtype {short_repr(dtype)}; supported are {', '.join(DTYPES)}.")
    if not _are_sizes(shape) or len(shape) > _MAX_DIMS:
        raise invalid(f"has shape {short_repr(shape)}; expected a list of at most {_MAX_DIMS} sizes.")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise invalid(f"has data_offsets {short_repr(offsets)}; expected [start, end] with start <= end.")
    torch_name, width = DTYPES[dtype]
    needed, actual = math.prod(shape) * width, offsets[1] - offsets[0]
    if needed != actual:
        raise invalid(f"of shape {short_repr(shape)} in {dtype} needs {short_repr(needed)} bytes, not {actual:,}.")
    return TensorInfo(name, torch_name, tuple(shape), data_start + offsets[0], actual)


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_layout(info: Mapping[str, TensorInfo], data_start: int, size: int, where: str) -> None:
    """Check that the tensors fill the file from header to end, without overlap or gap."""
    end = data_start
    for tensor in sorted(info.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset != end:
            fault = "overlaps the one before it" if tensor.offset < end else "leaves a gap before it"
            raise InvalidInput(f"{where}: tensor {short_repr(tensor.name)} {fault}.")
        end += tensor.nbytes
        if end > size:
            missing = f"{end - size:,} bytes are missing"
            raise InvalidInput(f"{where}: tensor {short_repr(tensor.name)} ends after the end of the file: {missing}.")
    if end != size:
        raise InvalidInput(f"{where}: {size - end:,} extra bytes after the last tensor.")


def _open_shards(folder: SafeFolder) -> TensorStore:
    where = folder.path / INDEX_FILE
    file_names = folder.read_json(INDEX_FILE).get("weight_map")
    if not isinstance(file_names, dict) or not all(isinstance(name, str) for name in file_names.values()):
        raise InvalidInput(f"{where}: weight_map should map each tensor to its file.")
    wrong = next((name for name in file_names.values() if not name.endswith(".safetensors")), None)
    if wrong is not None:
        raise InvalidInput(f"{where} lists the file {short_repr(wrong)}: only .safetensors files are read.")
    files = {name: TensorFile(folder, name) for name in sorted(set(file_names.values()))}
    for tensor, name in file_names.items():
        if tensor not in files[name].info:
            raise InvalidInput(f"{where} lists {short_repr(tensor)} in {name}, which does not contain it.")
    for name, file in files.items():
        extra = next((tensor for tensor in file.info if file_names.get(tensor) != name), None)
        if extra is not None:
            raise InvalidInput(f"{file.path} contains {short_repr(extra)}, which {INDEX_FILE} does not list there.")
    return TensorStore({tensor: (files[name], tensor) for tensor, name in file_names.items()})
