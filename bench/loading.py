"""What loading costs: the most memory that a process takes to load a checkpoint of GPT-2 small, over its size.

    python -m bench.loading

Each loader runs in a process of its own, which tells its own peak before (all imported) and after the weights are
there and one token was read. A mapped file is counted as far as it was touched. At most 1.3 times the file's size;
transformers stands beside it for comparison. A broken bound is exit code 1.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from bench.measure import machine

MOST = 1.3


def make(folder: Path) -> int:
    """A checkpoint of the GPT-2-small shape, as transformers stores it; its size in bytes."""
    from peasy.checkpoint.huggingface import write_folder
    from peasy.models.build import build
    from peasy.models.preset import preset

    config = preset("gpt2")
    write_folder(folder, config, build(config, seed=0).state_dict())
    return (folder / "model.safetensors").stat().st_size


def ours(folder: str) -> None:
    from peasy.checkpoint.huggingface import load_model, read_folder

    _tell(lambda: load_model(read_folder(folder)))


def own(folder: str) -> None:
    """peasy's own kind of folder: every byte is hashed before it is mapped."""
    from peasy.checkpoint.model import load_model
    from peasy.checkpoint.store import read_checkpoint

    _tell(lambda: load_model(read_checkpoint(folder)))


def theirs(folder: str) -> None:
    from transformers import GPT2LMHeadModel

    _tell(lambda: GPT2LMHeadModel.from_pretrained(folder))


def _tell(load) -> None:
    """Print the peak before, the peak after, and the seconds between."""
    warm = torch.nn.Linear(8, 8)
    with torch.inference_mode():
        warm(torch.zeros(1, 8))
        before, began = _peak(), time.perf_counter()
        model = load()
        took = time.perf_counter() - began
        model(torch.tensor([[1]]))
    print(json.dumps({"before": before, "after": _peak(), "seconds": took}))


def _peak() -> int:
    """The most memory this process ever held. `ru_maxrss` would still count the parent that started it."""
    for line in Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(loader: str, folder: Path) -> tuple[int, float]:
    """Bytes over the baseline, and seconds, of one loader in a process of its own."""
    command = [sys.executable, "-m", "bench.loading", loader, str(folder)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return told["after"] - told["before"], told["seconds"]


def main() -> int:
    print(f"torch {torch.__version__}; {machine()}")
    broken = False
    with tempfile.TemporaryDirectory() as home:
        folder, again = Path(home) / "gpt2", Path(home) / "own"
        size = make(folder)
        _save_own(folder, again)
        print(f"GPT-2 small, float32, {size / 1e6:.1f} MB")
        for loader, place in (("ours", folder), ("own", again), ("theirs", folder)):
            peak, took = measure(loader, place)
            broken |= loader != "theirs" and peak > MOST * size
            print(
                f"{loader:<8} peak {peak / 1e6:7.1f} MB over the baseline = {peak / size:.2f} of the file, {took:.2f} s"
            )
    print(f"at most {MOST} of the file{'   BROKEN' if broken else ''}")
    return int(broken)


def _save_own(source: Path, target: Path) -> None:
    from peasy.checkpoint.huggingface import load_model, read_folder
    from peasy.checkpoint.model import save_model

    save_model(target, load_model(read_folder(source)))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        {"ours": ours, "own": own, "theirs": theirs}[sys.argv[1]](sys.argv[2])
    else:
        sys.exit(main())
