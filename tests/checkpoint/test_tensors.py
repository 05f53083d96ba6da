"""Safetensors reader and writer: dtypes, shards, NaN checks, malformed files."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from peasy.checkpoint import tensors as tensors_module
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.tensors import INDEX_FILE, WEIGHTS_FILE, TensorFile, open_tensors, write_tensors
from peasy.errors import InvalidInput, NotFound

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def write_raw(path, header, data=b"", length=None):
    """Write a safetensors file with an arbitrary header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)


def entry(start=0, end=8, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reads_files_of_the_safetensors_library(tmp_path, dtype):
    tensors = {"a": torch.arange(6).reshape(2, 3).to(dtype), "b.c": torch.ones(()).to(dtype), "none": torch.zeros(0, 4)}
    save_file(tensors, tmp_path / WEIGHTS_FILE)
    loaded = open_tensors(SafeFolder(tmp_path))
    assert set(loaded) == set(tensors)
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
        assert loaded.info(name).shape == tuple(tensor.shape)
    assert loaded.nbytes == sum(tensor.nbytes for tensor in tensors.values())


def test_safetensors_library_reads_our_files(tmp_path):
    tensors = {"a": torch.randn(3, 4), "transposed": torch.randn(4, 3).T, "half": torch.randn(5).half()}
    assert write_tensors(tmp_path, tensors) == [WEIGHTS_FILE]
    reloaded = load_file(tmp_path / WEIGHTS_FILE)
    assert all(torch.equal(reloaded[name], tensor) for name, tensor in tensors.items())


def test_unaligned_tensor_is_copied(tmp_path):
    values = torch.tensor([1.5, -2.0])
    header = {"a": entry(0, 1, (1,), "U8"), "b": entry(1, 9)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    write_raw(tmp_path / WEIGHTS_FILE, text, b"\x07" + values.numpy().tobytes())
    assert torch.equal(open_tensors(SafeFolder(tmp_path))["b"], values)


def test_large_weights_are_written_in_shards(tmp_path):
    tensors = {f"w{i}": torch.randn(100) for i in range(5)}
    names = write_tensors(tmp_path, tensors, shard_bytes=900)
    assert names == [*(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)), INDEX_FILE]
    loaded = open_tensors(SafeFolder(tmp_path))
    assert list(loaded) == list(tensors)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    assert json.loads((tmp_path / INDEX_FILE).read_text())["metadata"]["total_size"] == 2000


def test_writing_to_a_mapped_tensor_does_not_reach_the_file(tmp_path):
    write_tensors(tmp_path, {"a": torch.ones(4)})
    before = (tmp_path / WEIGHTS_FILE).read_bytes()
    tensor = open_tensors(SafeFolder(tmp_path))["a"]
    tensor += 1
    assert (tmp_path / WEIGHTS_FILE).read_bytes() == before


def test_mapped_tensor_outlives_its_file(tmp_path):
    write_tensors(tmp_path, {"a": torch.arange(1000.0)})
    tensor = open_tensors(SafeFolder(tmp_path))["a"]
    (tmp_path / WEIGHTS_FILE).unlink()
    assert tensor.sum() == 499500


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused_by_name(tmp_path, dtype, bad):
    save_file({"good": torch.ones(3), "layers.3.w": torch.tensor([1, bad, 2]).to(dtype)}, tmp_path / WEIGHTS_FILE)
    loaded = open_tensors(SafeFolder(tmp_path))
    assert loaded["good"].sum() == 3
    with pytest.raises(InvalidInput, match=r"'layers.3.w' contains NaN or infinity"):
        loaded["layers.3.w"]
    with pytest.raises(InvalidInput, match="NaN or infinity"):
        write_tensors(tmp_path, {"x": torch.tensor([bad])})


def test_large_finite_numbers_are_not_mistaken_for_infinity(tmp_path):
    huge = torch.full((1000,), 3e38)
    save_file({"a": huge, "h": torch.full((9000,), 60000.0).half()}, tmp_path / WEIGHTS_FILE)
    loaded = open_tensors(SafeFolder(tmp_path))
    assert torch.equal(loaded["a"], huge)
    assert loaded["h"].max() == 60000


def test_without_the_check_nan_would_pass(tmp_path, monkeypatch):
    save_file({"a": torch.tensor([math.nan])}, tmp_path / WEIGHTS_FILE)
    monkeypatch.setattr(tensors_module, "check_finite", lambda *tensor: None)
    assert open_tensors(SafeFolder(tmp_path))["a"].isnan().all()


MALFORMED = {
    "too short": (None, "too short"),
    "header larger than the file": ({"header": {}, "length": 10**6}, "claims a header"),
    "header of exabytes": ({"header": {}, "length": 2**63}, "claims a header"),
    "header that is invalid JSON": ({"header": b"{"}, "not valid JSON"),
    "header that is no object": ({"header": b"[]"}, "should be a JSON object"),
    "name twice": ({"header": b'{"a": 1, "a": 2}'}, "'a' twice"),
    "entry that is no object": ({"header": {"a": 3}}, "exactly dtype"),
    "entry with more": ({"header": {"a": entry() | {"code": "x"}}, "data": bytes(8)}, "exactly dtype"),
    "unknown type": ({"header": {"a": entry(dtype="F4")}, "data": bytes(8)}, "dtype 'F4'"),
    "type that is no text": ({"header": {"a": entry(dtype=[])}, "data": bytes(8)}, r"dtype \[\]"),
    "negative shape": ({"header": {"a": entry(shape=(-2,))}, "data": bytes(8)}, "shape"),
    "broken shape": ({"header": {"a": entry(shape=(2.0,))}, "data": bytes(8)}, "shape"),
    "true shape": ({"header": {"a": entry(shape=(True, 2))}, "data": bytes(8)}, "shape"),
    "endless shape": ({"header": {"a": entry(shape=(1,) * 99)}, "data": bytes(8)}, "shape"),
    "shape that overflows": ({"header": {"a": entry(shape=(2**62, 2**62))}, "data": bytes(8)}, "needs"),
    "shape that is too large": ({"header": {"a": entry(shape=(3,))}, "data": bytes(8)}, "needs 12 bytes, not 8"),
    "offsets reversed": ({"header": {"a": entry(8, 0)}, "data": bytes(8)}, "data_offsets"),
    "three offsets": ({"header": {"a": entry() | {"data_offsets": [0, 4, 8]}}, "data": bytes(8)}, "data_offsets"),
    "overlap": ({"header": {"a": entry(), "b": entry(4, 12)}, "data": bytes(12)}, "'b' overlaps"),
    "same bytes twice": ({"header": {"a": entry(), "b": entry()}, "data": bytes(8)}, "overlaps"),
    "gap": ({"header": {"a": entry(), "b": entry(12, 20)}, "data": bytes(20)}, "gap"),
    "cut off": ({"header": {"a": entry()}, "data": bytes(5)}, "'a' ends after the end of the file: 3 bytes"),
    "something after it": ({"header": {"a": entry()}, "data": bytes(10)}, "2 extra bytes after the last tensor"),
    "odd metadata": ({"header": {"__metadata__": {"a": 1}}}, "__metadata__"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_are_refused_before_mapping(tmp_path, name, monkeypatch):
    arguments, message = MALFORMED[name]
    path = tmp_path / WEIGHTS_FILE
    if arguments is None:
        path.write_bytes(b"1234")
    else:
        write_raw(path, **arguments)
    monkeypatch.setattr(tensors_module.mmap, "mmap", lambda *a, **k: pytest.fail("mapped"))
    with pytest.raises(InvalidInput, match=message) as caught:
        TensorFile(SafeFolder(tmp_path))
    assert str(path) in caught.value.message


def test_pickle_files_are_refused(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n.")
    with pytest.raises(InvalidInput, match=r"pytorch_model\.bin: a pickle file, which can run code"):
        open_tensors(SafeFolder(tmp_path))


def test_missing_weights_file(tmp_path):
    with pytest.raises(NotFound, match=r"model\.safetensors"):
        open_tensors(SafeFolder(tmp_path))


def index(tmp_path, weight_map):
    (tmp_path / INDEX_FILE).write_text(json.dumps({"weight_map": weight_map}))
    return SafeFolder(tmp_path)


@pytest.mark.parametrize("name", ["../x.safetensors", "/x.safetensors", "a/b.safetensors"])
def test_index_cannot_name_outside_files(tmp_path, name):
    with pytest.raises(InvalidInput, match="bare file names"):
        open_tensors(index(tmp_path, {"a": name}))


def test_index_cannot_name_pickle_files(tmp_path):
    with pytest.raises(InvalidInput, match=r"only \.safetensors"):
        open_tensors(index(tmp_path, {"a": "pytorch_model.bin"}))


def test_index_and_shards_must_agree(tmp_path):
    save_file({"a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "s.safetensors")
    with pytest.raises(InvalidInput, match=r"lists 'c' in s\.safetensors, which"):
        open_tensors(index(tmp_path, {"a": "s.safetensors", "b": "s.safetensors", "c": "s.safetensors"}))
    with pytest.raises(InvalidInput, match="contains 'b', which"):
        open_tensors(index(tmp_path, {"a": "s.safetensors"}))
    with pytest.raises(NotFound, match=r"t\.safetensors"):
        open_tensors(index(tmp_path, {"a": "t.safetensors"}))
    with pytest.raises(InvalidInput, match="weight_map"):
        open_tensors(index(tmp_path, ["a"]))
