"""Manifest: validation, and detection of every damaged file."""

import json
import random

import pytest

from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import MANIFEST_FILE, is_intact, read_manifest, verify, write_manifest
from peasy.errors import InvalidInput, PeasyError


def change_manifest(folder, **changes):
    path = folder / MANIFEST_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_manifest_lists_files_with_size_hash_and_versions(folder):
    manifest = read_manifest(SafeFolder(folder))
    assert set(manifest.files) == {path.name for path in folder.iterdir()} - {MANIFEST_FILE}
    assert all(record.bytes == (folder / name).stat().st_size for name, record in manifest.files.items())
    assert {"peasy", "torch", "python"} <= set(manifest.versions)
    assert manifest.version == 1
    assert is_intact(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "format 'other'"),
        ({"version": 2}, "version 2"),
        ({"files": [1]}, "files should be a table"),
        ({"files": {"a": {"bytes": "1", "sha256": ""}}}, r"files.a.bytes should be a whole number"),
        ({"extra": 1}, "extra: unknown key"),
    ],
)
def test_invalid_manifest(folder, changes, message):
    change_manifest(folder, **changes)
    with pytest.raises(InvalidInput, match=message):
        read_manifest(SafeFolder(folder))


def test_manifest_cannot_name_outside_files(folder):
    change_manifest(folder, files={"../x": {"bytes": 1, "sha256": ""}})
    with pytest.raises(InvalidInput, match="bare file names"):
        verify(SafeFolder(folder), read_manifest(SafeFolder(folder)))


def test_extra_and_missing_files_are_detected(folder):
    (folder / "model-x.safetensors").touch()
    assert not is_intact(folder)
    (folder / "model-x.safetensors").unlink()
    assert is_intact(folder)
    (folder / "config.json").unlink()
    assert not is_intact(folder)


def test_every_flipped_bit_and_truncation_is_detected(folder):
    rng = random.Random(0)
    names = [path.name for path in folder.iterdir() if path.name != MANIFEST_FILE]
    manifest = read_manifest(SafeFolder(folder))
    for _ in range(100):
        path = folder / rng.choice(names)
        data = path.read_bytes()
        damaged = bytearray(data)
        if rng.random() < 0.3:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(PeasyError, match=path.name):
            verify(SafeFolder(folder), manifest)
        path.write_bytes(data)
    verify(SafeFolder(folder), manifest)


def test_damaged_manifest_is_detected(folder):
    rng = random.Random(1)
    path = folder / MANIFEST_FILE
    text = path.read_text()
    digits = [i for i, character in enumerate(text) if character in "0123456789abcdef" and i < text.index('"versions"')]
    for _ in range(50):
        index = rng.choice(digits)
        other = "f" if text[index] != "f" else "0"
        path.write_text(text[:index] + other + text[index + 1 :])
        assert not is_intact(folder)


def test_notes_are_kept(tmp_path):
    (tmp_path / "a").touch()
    write_manifest(tmp_path, {"source": "somewhere"})
    assert read_manifest(SafeFolder(tmp_path)).notes == {"source": "somewhere"}
