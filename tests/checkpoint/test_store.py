import json

import pytest
import torch

from peasy.checkpoint.store import is_checkpoint, read_checkpoint, write_checkpoint
from peasy.errors import InvalidInput, NotFound


def test_what_was_written_is_read(tmp_path, tokenizer):
    weights = {"a.weight": torch.randn(3, 2), "b": torch.arange(4)}
    where = write_checkpoint(
        tmp_path / "c", weights, {"kind": "x", "é": 1}, tokenizer, extras={"note.txt": b"hi"}, notes={"source": "me"}
    )
    found = read_checkpoint(where)
    assert found.config == {"kind": "x", "é": 1}
    assert {name: found.tensors[name].tolist() for name in found.tensors} == {
        name: tensor.tolist() for name, tensor in weights.items()
    }
    assert found.tokenizer == (where / "tokenizer.json").resolve()
    assert found.manifest.notes == {"source": "me"}
    assert (where / "note.txt").read_bytes() == b"hi"
    assert is_checkpoint(where)


def test_without_a_tokenizer(tmp_path):
    assert read_checkpoint(write_checkpoint(tmp_path / "c", {"a": torch.ones(1)}, {})).tokenizer is None


def test_with_two_tokenizers(tmp_path, tokenizer):
    where = write_checkpoint(tmp_path / "c", {"a": torch.ones(1)}, {}, tokenizer, target_tokenizer=tokenizer)
    names = {"tokenizer.json", "tokenizer_config.json", "target_tokenizer.json", "target_tokenizer_config.json"}
    assert names <= set(read_checkpoint(where).manifest.files)


def test_a_damaged_file_is_refused_by_name(folder):
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(InvalidInput, match=r"model\.safetensors is not what was written"):
        read_checkpoint(folder)
    assert read_checkpoint(folder, verified=True)  # the inverse: only the hash knows


def test_weights_that_are_not_numbers_are_never_written(tmp_path):
    with pytest.raises(InvalidInput, match="NaN"):
        write_checkpoint(tmp_path / "c", {"a": torch.tensor([float("nan")])}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else_says_what_to_do(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotFound, match="no manifest") as caught:
        read_checkpoint(tmp_path)
    assert "peasy import" in caught.value.hint


def test_a_manifest_without_config(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["config.json"]
    (folder / "config.json").unlink()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidInput, match=r"does not name config\.json"):
        read_checkpoint(folder)
