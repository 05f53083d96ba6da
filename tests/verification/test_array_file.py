"""File of named arrays between two processes."""

import json

import numpy as np
import pytest

from peasy.errors import InvalidInput
from peasy.verification.implementation.array_file import load_file, save_file

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 4), np.int64),
    "mask": np.array([True, False]),
}


def test_round_trip(tmp_path):
    save_file(ARRAYS, tmp_path / "x")
    loaded = load_file(tmp_path / "x")
    assert list(loaded) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert loaded[name].dtype == array.dtype
        assert np.array_equal(loaded[name], array)
        assert loaded[name].flags.writeable


def test_objects_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="numbers"):
        save_file({"a": np.array([{}], dtype=object)}, tmp_path / "x")
    (tmp_path / "x").write_bytes(json.dumps({"a": ["|O", [1]]}).encode() + b"\n" + b"\0" * 8)
    with pytest.raises(InvalidInput, match="numbers"):
        load_file(tmp_path / "x")


@pytest.mark.parametrize("shape", [[10**12], [10**9, 10**9], [-1, 2]])
def test_sizes_are_checked_before_memory_is_allocated(tmp_path, shape):
    (tmp_path / "x").write_bytes(json.dumps({"a": ["<f8", shape]}).encode() + b"\n" + b"\0" * 8)
    with pytest.raises(InvalidInput, match="cut off"):
        load_file(tmp_path / "x")
