"""Attention capture and pages against BertViz and TransformerLens: the same GPT-2-small weights, own processes.

    BENCH_PEERS=/path/to/python python -m bench.viewers [tokens ...]

`BENCH_PEERS` is an interpreter with transformers, bertviz and transformer_lens (peasy need not be installed there).
Attention weights must agree to 1e-5. Printed for each length: seconds, peak memory over the resident size before, or
the error. BertViz draws the output of transformers' eager attention, so its time includes both; its page contains every
weight as text. peasy captures all heads and writes its page as well.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LENGTHS = (128, 256, 512, 1024)
TIMEOUT = 120


def ids(length: int) -> Any:
    import torch

    return torch.randint(0, 50257, (1, length), generator=torch.Generator().manual_seed(length))


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024


def peasy(folder: str) -> Any:
    from peasy.commands.load import load

    loaded = load(folder)

    def run(length: int) -> tuple[Any, int]:
        result = loaded.look(ids(length)[0].tolist(), max_memory="2GB")
        return result.weights, len(result.html())

    return run


def bertviz(folder: str) -> Any:
    import torch
    from bertviz import head_view
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()

    def run(length: int) -> tuple[Any, int]:
        with torch.inference_mode():
            attentions = model(ids(length), output_attentions=True, use_cache=False).attentions
        page = head_view(attentions, [str(i) for i in range(length)], html_action="return")
        return attentions, len(page.data)

    return run


def transformer_lens(folder: str) -> Any:
    """Version 4 wraps the model of transformers; it needs a tokenizer, which is not used here."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

    eos = "<|endoftext|>"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({eos: 0}, unk_token=eos)), bos_token=eos, eos_token=eos, unk_token=eos,
        pad_token=eos,
    )  # fmt: skip
    tokenizer.save_pretrained(f"{folder}/tokenizer")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(f"{folder}/tokenizer")
    hf_model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()
    model = TransformerBridge.boot_transformers(folder, hf_model=hf_model, tokenizer=tokenizer, device="cpu")

    def run(length: int) -> tuple[Any, int]:
        with torch.inference_mode():
            _, cache = model.run_with_cache(ids(length), names_filter=lambda name: name.endswith("hook_pattern"))
        return [cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(12)], 0

    return run


def child(name: str, folder: str, length: int) -> None:
    """Run one candidate at one length: print its figures as JSON, save its weights beside the model."""
    import numpy as np

    run = globals()[name](folder)
    run(16)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    weights, page = run(length)
    seconds, peak = time.perf_counter() - start, resident("VmHWM") - before
    if length == LENGTHS[0]:
        array = np.asarray(weights) if name == "peasy" else np.stack([np.asarray(layer[0]) for layer in weights])
        np.save(Path(folder) / f"{name}.npy", array.astype(np.float32))
    print(json.dumps({"seconds": seconds, "peak": peak, "page": page}))


def measure(name: str, folder: str, length: int, python: str) -> dict[str, Any]:
    command = [python, "-m", "bench.viewers", name, folder, str(length)]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {TIMEOUT} s"}
    if finished.returncode:
        return {"error": (finished.stderr.strip().splitlines() or ["killed"])[-1][:100]}
    return json.loads(finished.stdout.splitlines()[-1])


def main() -> int:
    import numpy as np
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    python = os.environ.get("BENCH_PEERS", sys.executable)
    torch.manual_seed(0)
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
        for length in map(int, sys.argv[1:] or LENGTHS):
            for name in ("peasy", "bertviz", "transformer_lens"):
                figures = measure(name, folder, length, sys.executable if name == "peasy" else python)
                summary = figures.get("error") or (
                    f"{figures['seconds']:.2f} s, {figures['peak'] / 2**20:,.0f} MiB, "
                    f"page {figures['page'] / 2**20:.1f} MiB"
                )
                print(f"{length:>6} tokens  {name:<17} {summary}", flush=True)
        for name in ("bertviz", "transformer_lens"):
            if not all(Path(f"{folder}/{tool}.npy").exists() for tool in ("peasy", name)):
                print(f"{name}: not compared at these lengths")
                continue
            weights = np.load(f"{folder}/peasy.npy")
            difference = float(np.abs(weights - np.load(f"{folder}/{name}.npy")).max())
            missed |= difference > 1e-5
            print(f"{name}: weights differ by at most {difference:.1e}, at most 1e-05 is allowed")
    return int(missed)


if __name__ == "__main__":
    if len(sys.argv) == 4 and not sys.argv[1].isdecimal():
        child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
