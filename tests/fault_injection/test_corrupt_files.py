"""Damaged and hostile model folders: an error or a sound model, never a crash, a hang, executed code or outside access.

The default run takes a sample of each sweep; `-m faults` runs them completely.
"""

import json
import math
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import array_api_compat.torch  # noqa: F401 (the formula loads it late, which must not look like a file of the model)
import pytest
import torch
from safetensors.torch import load_file, save_file

from peasy.checkpoint.huggingface import load_model as load_foreign
from peasy.checkpoint.huggingface import read_folder, write_folder
from peasy.checkpoint.loaded_model import open_model
from peasy.checkpoint.model import load_model, save_model
from peasy.checkpoint.paths import ResolvedModel
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import read_checkpoint, write_manifest
from peasy.checkpoint.tensors import WEIGHTS_FILE, open_tensors
from peasy.errors import PeasyError
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer

FORBIDDEN = (
    "exec", "compile", "pickle.", "marshal.", "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.spawn",
    "os.posix_spawn", "ctypes.dlopen", "import", "urllib.", "http.", "shutil.", "os.remove", "os.rename",
)  # fmt: skip
_seen: list[str] | None = None


def _watch(event, arguments):
    if event == "open" and isinstance(arguments[0], int):
        return  # a file descriptor of a file already opened by path
    if _seen is not None and event.startswith((*FORBIDDEN, "open")):
        _seen.append(f"{event} {arguments[0] if arguments else ''}")


sys.addaudithook(_watch)


class Watched:
    """Audit of a block: files opened outside `folder`, and forbidden events."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self):
        global _seen
        _seen = self.seen = []
        return self

    def __exit__(self, *error):
        global _seen
        _seen = None
        allowed = (f"open {self.folder}", "open /proc/", "open /sys/fs/cgroup/")
        self.seen[:] = [event for event in self.seen if not event.startswith(allowed)]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A small checkpoint of peasy."""
    tokenizer = train_tokenizer(["The pizza came out of the oven"] * 9, "bpe", 270)
    settings = preset("gpt-tiny", vocab_size=270, d_model=8, max_seq_len=16, stack={"feedforward": {"d_ff": 16}})
    return save_model(tmp_path_factory.mktemp("own") / "tiny", build(settings), tokenizer)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A small Hugging Face folder."""
    tokenizer = train_tokenizer(["The pizza came out of the oven"] * 9, "bpe", 270)
    shape = {"num_layers": 2, "attention": {"num_heads": 2}, "feedforward": {"d_ff": 16}}
    settings = preset("gpt2", vocab_size=270, d_model=8, max_seq_len=16, stack=shape)
    where = tmp_path_factory.mktemp("foreign") / "tiny"
    return write_folder(where, settings, build(settings).state_dict(), tokenizer)


@pytest.fixture
def own_copy(own, tmp_path):
    return shutil.copytree(own, tmp_path / "own").resolve()


@pytest.fixture
def foreign_copy(foreign, tmp_path):
    return shutil.copytree(foreign, tmp_path / "foreign").resolve()


STRANGE = [
    None, -1, 0, 1, 3, 10**6, 2**31, 2**63, 10**400, 0.5, -0.5, 1e308, "", "x", "../../etc/passwd", [], [1], [[]], {},
    {"a": 1}, True, False, "F64", "I8", "é" * 50,
]  # fmt: skip


def spoil_value(value, rng):
    """Return the data with one value changed, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        rest = {name: inner for name, inner in value.items() if name != key}
        chance = rng.random()
        if chance < 0.1:
            return rest
        if chance < 0.15:
            return value | {key + "x": value[key]}
        return value | {key: spoil_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], spoil_value(value[at], rng), *value[at + 1 :]]
    if type(value) is int and rng.random() < 0.5:
        return value + rng.choice([-1, 1, 8, -8, value, 2**32])
    return rng.choice(STRANGE)


def spoil_bytes(data, rng):
    """Flip bits, overwrite bytes, cut, duplicate or move pieces."""
    spoilt = bytearray(data)
    size = 8 + int.from_bytes(data[:8], "little")
    for _ in range(rng.choice([1, 1, 1, 2, 5, 50])):
        at = rng.randrange(rng.choice([8, size, len(spoilt)]) or 1) if spoilt else 0
        act = rng.randrange(6)
        if act == 0 and spoilt:
            spoilt[min(at, len(spoilt) - 1)] ^= 1 << rng.randrange(8)
        elif act == 1:
            spoilt[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(1, 9))
        elif act == 2:
            del spoilt[at:]
        elif act == 3:
            spoilt[at:at] = rng.randbytes(rng.randrange(1, 64))
        elif act == 4:
            spoilt[at:at] = spoilt[at : at + 64]
        else:
            spoilt[at : at + 4] = b"\xff\xff\xff\x7f"
    return bytes(spoilt)


def spoil_header(data, rng):
    """Return a safetensors header that is valid JSON, with one value changed."""
    size = int.from_bytes(data[:8], "little")
    header = json.dumps(spoil_value(json.loads(data[8 : 8 + size]), rng)).encode()
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def sweep(count: int, folder: Path, most_seconds: float, spoil: Callable, load: Callable) -> tuple[int, int]:
    """Spoil and load `count` times under the audit hook; return how many were rejected and how many loaded."""
    for seed in range(-20, 0):  # warm up lazy imports first
        spoil(random.Random(seed))
        attempt(load)
    rejected = 0
    for seed in range(count):
        spoil(random.Random(seed))
        start = time.process_time()
        with Watched(folder) as watched:
            error = attempt(load)
        if time.process_time() - start >= most_seconds:  # a garbage collection can fall into one try, not into three
            assert min(seconds(load) for _ in range(3)) < most_seconds, f"seed {seed}"
        rejected += error is not None
        assert watched.seen == [], f"seed {seed}"
        if error is not None:
            named = (str(folder), "config.json", "is missing the weights", "has unexpected weights")
            assert any(name in error.message for name in named), f"seed {seed}: {error.message}"
            assert len(error.message) < 2000, f"seed {seed}"
    return rejected, count - rejected


def seconds(load: Callable) -> float:
    """Return the CPU time of one attempt to load."""
    start = time.process_time()
    attempt(load)
    return time.process_time() - start


def attempt(load):
    """Return the PeasyError that loading raised, if any; other exceptions fail the test."""
    try:
        load()
    except PeasyError as error:
        return error
    return None


def sizes(whole):
    """A sample by default, and `whole` times as much under `-m faults`."""
    return [pytest.param(1, id="sample"), pytest.param(whole, id="whole", marks=pytest.mark.faults)]


@pytest.mark.parametrize("times", sizes(30))
@pytest.mark.parametrize("spoil_one", [spoil_bytes, spoil_header])
def test_mutated_safetensors(foreign_copy, times, spoil_one):
    """5,000 of each kind in the full run."""
    path = foreign_copy / WEIGHTS_FILE
    data = path.read_bytes()

    def load():
        tensors = open_tensors(SafeFolder(foreign_copy))
        for name in tensors:
            tensor = tensors[name]
            assert tuple(tensor.shape) == tensors.info(name).shape
            assert not tensor.is_floating_point() or torch.isfinite(tensor).all()

    rejected, loaded = sweep(167 * times, foreign_copy, 0.1, lambda rng: path.write_bytes(spoil_one(data, rng)), load)
    assert rejected > 100
    assert loaded > 0  # a flipped bit inside a weight is only detected with a manifest


@pytest.mark.parametrize(
    "times",
    [pytest.param(1, id="sample"), pytest.param(10, id="whole", marks=[pytest.mark.faults, pytest.mark.timeout(1800)])],
)
def test_mutated_safetensors_of_a_checkpoint_never_load(own_copy, times):
    """The manifest detects every changed byte: 1,000 of 1,000."""
    path = own_copy / WEIGHTS_FILE
    data = path.read_bytes()

    def spoil(rng):
        spoilt = spoil_bytes(data, rng)
        path.write_bytes(spoilt if spoilt != data else data[:-1])

    rejected, loaded = sweep(100 * times, own_copy, 0.1, spoil, lambda: load_model(read_checkpoint(own_copy)))
    assert (rejected, loaded) == (100 * times, 0)


@pytest.mark.parametrize(
    "times",
    [pytest.param(1, id="sample"), pytest.param(10, id="whole", marks=[pytest.mark.faults, pytest.mark.timeout(1800)])],
)
@pytest.mark.parametrize("origin", ["own", "foreign"])
def test_mutated_configs(own_copy, foreign_copy, origin, times):
    """1,000 in the full run. A config.json that still loads gives a model that still runs."""
    folder = own_copy if origin == "own" else foreign_copy
    path = folder / "config.json"
    data = json.loads(path.read_text())

    def spoil(rng):
        path.write_text(json.dumps(spoil_value(data, rng)))
        if origin == "own":
            write_manifest(folder)

    def load():
        model = load_model(read_checkpoint(folder)) if origin == "own" else load_foreign(read_folder(folder))
        with torch.inference_mode():
            model(torch.tensor([[1, 2, 3]]))

    rejected, loaded = sweep(100 * times, folder, 2.0, spoil, load)
    assert rejected > 40
    assert loaded > 0


@pytest.mark.parametrize("bad", [math.nan, -math.inf, 1e300])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_imported_weights_are_finite(foreign_copy, monkeypatch, dtype, bad):
    """One bad number in one tensor is refused by name; 1e300 is infinite in every dtype that calculates."""
    weights = load_file(foreign_copy / WEIGHTS_FILE)
    name = "transformer.h.1.attn.c_attn.weight"
    weights[name] = weights[name].to(dtype)
    weights[name].view(-1)[7] = torch.tensor(bad, dtype=torch.float64).to(dtype)
    save_file(weights, foreign_copy / WEIGHTS_FILE, metadata={"format": "pt"})
    with pytest.raises(PeasyError, match=f"'{name}' contains NaN or infinity"):
        load_foreign(read_folder(foreign_copy))
    monkeypatch.setattr("peasy.checkpoint.tensors.check_finite", lambda *given: None)  # the inverse: it would be loaded
    states = load_foreign(read_folder(foreign_copy)).state_dict().values()
    assert not all(torch.isfinite(weight.float()).all() for weight in states)


def test_remote_code_is_never_run(foreign_copy):
    """Custom code, a pickle and a script beside good weights are rejected by name, or ignored."""
    marker = foreign_copy.parent / "was-run"
    (foreign_copy / "modeling_x.py").write_text(f"open({str(marker)!r}, 'w')")
    (foreign_copy / "pytorch_model.bin").write_bytes(b"\x80\x04cposix\nsystem\n(V touch was-run\ntR.")
    resolved = ResolvedModel("path", "tiny", foreign_copy)
    open_model(resolved)
    with Watched(foreign_copy) as watched:
        assert open_model(resolved).kind == "decoder"
    assert watched.seen == []
    path = foreign_copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {"AutoModel": "modeling_x.Evil"}}))
    with Watched(foreign_copy) as watched, pytest.raises(PeasyError, match="auto_map"):
        open_model(resolved)
    assert watched.seen == []
    assert not marker.exists()


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "link.safetensors", "pipe.safetensors"])
def test_shards_outside_the_folder_are_rejected(foreign_copy, name):
    import os

    secret = foreign_copy.parent / "secret.safetensors"
    shutil.copy(foreign_copy / WEIGHTS_FILE, secret)
    (foreign_copy / "link.safetensors").symlink_to(secret)
    os.mkfifo(foreign_copy / "pipe.safetensors")
    tensors = open_tensors(SafeFolder(foreign_copy))
    index = {"weight_map": dict.fromkeys(tensors, name)}
    (foreign_copy / "model.safetensors.index.json").write_text(json.dumps(index))
    attempt(lambda: open_model(ResolvedModel("path", "tiny", foreign_copy)))
    with Watched(foreign_copy) as watched, pytest.raises(PeasyError, match=str(foreign_copy)):
        open_model(ResolvedModel("path", "tiny", foreign_copy))
    assert watched.seen == []


def test_audit_detects_forbidden_events(tmp_path):
    """The inverse: the audit detects what the sweeps look for."""
    import pickle
    import subprocess

    (tmp_path / "x").write_text("1")
    with Watched(tmp_path / "inside") as watched:
        pickle.loads(pickle.dumps(Path))
        subprocess.run(["true"], check=True)
        exec("1")
        (tmp_path / "x").read_text()
    for event in ("pickle.find_class", "subprocess.Popen", "exec", f"open {tmp_path / 'x'}"):
        assert [seen for seen in watched.seen if seen.startswith(event)], event
