"""Peak memory of loading a checkpoint of GPT-2 small, relative to its file size.

    python -m bench.loading

Each loader runs in its own process, which reports its peak before (everything imported) and after loading the weights
and one forward pass. A memory-mapped file counts as far as it was touched. At most 1.3 times the size of the file;
transformers is measured for comparison. A missed bound is exit code 1.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.measure import machine

MAX_RATIO = 1.3


def make_checkpoint(folder: Path) -> int:
    """Write a checkpoint of the GPT-2-small shape in Hugging Face format; return its size in bytes."""
    from peasy.checkpoint.huggingface import write_folder
    from peasy.models.build import build
    from peasy.models.preset import preset

    config = preset("gpt2")
    write_folder(folder, config, build(config, seed=0).state_dict())
    return (folder / "model.safetensors").stat().st_size


def peasy_from_huggingface(folder: str) -> None:
    from peasy.checkpoint.huggingface import load_model, read_folder

    _report(lambda: load_model(read_folder(folder)))


def peasy_checkpoint(folder: str) -> None:
    """Load peasy's own format: every byte is hashed before it is mapped."""
    from peasy.checkpoint.model import load_model
    from peasy.checkpoint.store import read_checkpoint

    _report(lambda: load_model(read_checkpoint(folder)))


def transformers(folder: str) -> None:
    from transformers import GPT2LMHeadModel

    _report(lambda: GPT2LMHeadModel.from_pretrained(folder))


def _report(load: Callable[[], Any]) -> None:
    """Print the peak memory before and after loading, and the seconds between."""
    warm = torch.nn.Linear(8, 8)
    with torch.inference_mode():
        warm(torch.zeros(1, 8))
        before, began = _peak(), time.perf_counter()
        model = load()
        seconds = time.perf_counter() - began
        model(torch.tensor([[1]]))
    print(json.dumps({"before": before, "after": _peak(), "seconds": seconds}))


def _peak() -> int:
    """Return the peak memory of this process. `ru_maxrss` would include the parent that started it."""
    for line in Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


LOADERS = {function.__name__: function for function in (peasy_from_huggingface, peasy_checkpoint, transformers)}


def measure(loader: str, folder: Path) -> tuple[int, float]:
    """Return bytes over the baseline and seconds of one loader in its own process."""
    command = [sys.executable, "-m", "bench.loading", loader, str(folder)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return report["after"] - report["before"], report["seconds"]


def main() -> int:
    print(f"torch {torch.__version__}; {machine()}")
    missed = False
    with tempfile.TemporaryDirectory() as directory:
        huggingface, own = Path(directory) / "gpt2", Path(directory) / "own"
        size = make_checkpoint(huggingface)
        _convert(huggingface, own)
        print(f"GPT-2 small, float32, {size / 1e6:.1f} MB")
        for loader in LOADERS:
            peak, seconds = measure(loader, own if loader == "peasy_checkpoint" else huggingface)
            missed |= loader != "transformers" and peak > MAX_RATIO * size
            ratio = f"{peak / size:.2f} of the file"
            print(f"{loader:<24} peak {peak / 1e6:7.1f} MB over the baseline = {ratio}, {seconds:.2f} s")
    print(f"at most {MAX_RATIO} of the file{'   MISSED' if missed else ''}")
    return int(missed)


def _convert(source: Path, target: Path) -> None:
    from peasy.checkpoint.huggingface import load_model, read_folder
    from peasy.checkpoint.model import save_model

    save_model(target, load_model(read_folder(source)))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        LOADERS[sys.argv[1]](sys.argv[2])
    else:
        sys.exit(main())
