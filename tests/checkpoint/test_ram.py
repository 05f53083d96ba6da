"""Free RAM and the check before loading."""

import resource
import subprocess
import sys

import pytest

from peasy.checkpoint import ram
from peasy.errors import InvalidInput, ResourceUnavailable


def test_available_memory_is_positive():
    assert ram.available_ram() > 10 * 2**20


def test_too_large_model_is_refused(monkeypatch):
    monkeypatch.setattr(ram, "available_ram", lambda: 2**30)
    ram.require_ram(9 * 2**30 // 10, "small")
    with pytest.raises(ResourceUnavailable, match=r"large needs about 1\.1 GiB of memory; 1\.0 GiB are free"):
        ram.require_ram(2**30, "large")


def test_unknown_memory_allows_everything(monkeypatch):
    monkeypatch.setattr(ram, "_read_text", lambda path: "")
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY,) * 2)
    assert ram.available_ram() is None
    ram.require_ram(10**18, "anything")


def test_cgroup_limit(monkeypatch):
    files = {"/sys/fs/cgroup/memory.max": "1000", "/sys/fs/cgroup/memory.current": "400"}
    files["/sys/fs/cgroup/memory.stat"] = "anon 5\ninactive_file 100\n"
    monkeypatch.setattr(ram, "_read_text", lambda path: files.get(path, ""))
    assert ram.available_ram() == 700


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1536, "1.5 KiB"), (2.5 * 2**30, "2.5 GiB"), (2**52, "4,096.0 TiB")],
)
def test_format_bytes(count, text):
    assert ram.format_bytes(count) == text


PEAK = """
import sys, torch
import peasy.checkpoint.model
from peasy.checkpoint.model import load_model
from peasy.checkpoint.store import read_checkpoint
from peasy.models.build import build
from peasy.models.preset import preset

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024

load_model(read_checkpoint(sys.argv[2]))  # warm-up: torch's lazy initialization
before = peak()
checkpoint = read_checkpoint(sys.argv[1])
model = load_model(checkpoint)
print((peak() - before) / checkpoint.tensors.nbytes)
"""


@pytest.mark.slow
def test_peak_memory_of_loading_gpt2_is_close_to_its_size(tmp_path, saved):
    from peasy.checkpoint.model import save_model
    from peasy.models.build import build
    from peasy.models.preset import preset

    folder = save_model(tmp_path / "gpt2", build(preset("gpt2")))
    result = subprocess.run([sys.executable, "-c", PEAK, folder, saved], check=True, capture_output=True, text=True)
    assert float(result.stdout) <= 1.3


@pytest.mark.parametrize("text", ["much", "80 pigs", "", "-5GB"])
def test_invalid_amount_is_rejected(text):
    with pytest.raises(InvalidInput, match="amount"):
        ram.parse_amount(text)
