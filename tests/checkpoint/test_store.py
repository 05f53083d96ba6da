"""Checkpoint folders: round trips, damage, folders of other formats."""

import json

import pytest
import torch

from peasy.checkpoint.store import is_checkpoint, read_checkpoint, write_checkpoint
from peasy.errors import InvalidInput, NotFound


def test_write_read_round_trip(tmp_path, tokenizer):
    weights = {"a.weight": torch.randn(3, 2), "b": torch.arange(4)}
    folder = write_checkpoint(
        tmp_path / "c", weights, {"kind": "x", "é": 1}, tokenizer, extras={"note.txt": b"hi"}, notes={"source": "me"}
    )
    checkpoint = read_checkpoint(folder)
    assert checkpoint.config == {"kind": "x", "é": 1}
    assert {name: checkpoint.tensors[name].tolist() for name in checkpoint.tensors} == {
        name: tensor.tolist() for name, tensor in weights.items()
    }
    assert "tokenizer.json" in checkpoint.manifest.files
    assert checkpoint.manifest.notes == {"source": "me"}
    assert (folder / "note.txt").read_bytes() == b"hi"
    assert is_checkpoint(folder)


def test_without_a_tokenizer(tmp_path):
    assert (
        "tokenizer.json"
        not in read_checkpoint(write_checkpoint(tmp_path / "c", {"a": torch.ones(1)}, {})).manifest.files
    )


def test_with_two_tokenizers(tmp_path, tokenizer):
    folder = write_checkpoint(tmp_path / "c", {"a": torch.ones(1)}, {}, tokenizer, target_tokenizer=tokenizer)
    names = {"tokenizer.json", "tokenizer_config.json", "target_tokenizer.json", "target_tokenizer_config.json"}
    assert names <= set(read_checkpoint(folder).manifest.files)


def test_damaged_file_is_named(folder):
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(InvalidInput, match=r"model\.safetensors was changed"):
        read_checkpoint(folder)
    assert read_checkpoint(folder, verified=True)  # inverse: only the hash detects it


def test_nan_weights_are_never_written(tmp_path):
    with pytest.raises(InvalidInput, match="NaN"):
        write_checkpoint(tmp_path / "c", {"a": torch.tensor([float("nan")])}, {})
    assert list(tmp_path.iterdir()) == []


def test_hugging_face_folder_error_suggests_import(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotFound, match="no manifest") as caught:
        read_checkpoint(tmp_path)
    assert "peasy import" in caught.value.hint


def test_manifest_without_config(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["config.json"]
    (folder / "config.json").unlink()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidInput, match=r"does not list config\.json"):
        read_checkpoint(folder)
