"""peasy beside BertViz and TransformerLens: the same GPT-2-small weights, each in a process of its own.

    BENCH_PEERS=/path/to/python python -m bench.viewers [tokens ...]

`BENCH_PEERS` is an interpreter that has transformers, bertviz and transformer_lens (they need not be where peasy is).
Weights must be equal to 1e-5. Then for each length: seconds, peak of memory over what was held before, and whether it
went at all. BertViz draws what transformers' eager attention gives it, so its time holds both; its page is text of
which every weight is a part. peasy looks at all heads and writes its page as well.
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
SECONDS = 120


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
        found = loaded.look(ids(length)[0].tolist(), budget="2GB")
        return found.weights, len(found.html())

    return run


def bertviz(folder: str) -> Any:
    import torch
    from bertviz import head_view
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()

    def run(length: int) -> tuple[Any, int]:
        with torch.inference_mode():
            found = model(ids(length), output_attentions=True, use_cache=False).attentions
        page = head_view(found, [str(i) for i in range(length)], html_action="return")
        return found, len(page.data)

    return run


def transformer_lens(folder: str) -> Any:
    """Version 4 wraps transformers' own model; it insists on a tokenizer, of which nothing is asked here."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

    end = "<|endoftext|>"
    words = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({end: 0}, unk_token=end)), bos_token=end, eos_token=end, unk_token=end,
        pad_token=end,
    )  # fmt: skip
    words.save_pretrained(f"{folder}/words")
    words = PreTrainedTokenizerFast.from_pretrained(f"{folder}/words")
    theirs = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()
    model = TransformerBridge.boot_transformers(folder, hf_model=theirs, tokenizer=words, device="cpu")

    def run(length: int) -> tuple[Any, int]:
        with torch.inference_mode():
            _, cache = model.run_with_cache(ids(length), names_filter=lambda name: name.endswith("hook_pattern"))
        return [cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(12)], 0

    return run


def child(name: str, folder: str, length: int) -> None:
    """One candidate at one length: its figures as a line of JSON, its weights as a file beside the model."""
    import numpy as np

    run = globals()[name](folder)
    run(16)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    weights, page = run(length)
    seconds, peak = time.perf_counter() - start, resident("VmHWM") - before
    if length == LENGTHS[0]:
        first = np.asarray(weights) if name == "peasy" else np.stack([np.asarray(each[0]) for each in weights])
        np.save(Path(folder) / f"{name}.npy", first.astype(np.float32))
    print(json.dumps({"seconds": seconds, "peak": peak, "page": page}))


def measured(name: str, folder: str, length: int, python: str) -> dict[str, Any]:
    command = [python, "-m", "bench.viewers", name, folder, str(length)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {SECONDS} s"}
    if ran.returncode:
        return {"error": (ran.stderr.strip().splitlines() or ["killed"])[-1][:100]}
    return json.loads(ran.stdout.splitlines()[-1])


def main() -> int:
    import numpy as np
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    python = os.environ.get("BENCH_PEERS", sys.executable)
    torch.manual_seed(0)
    wrong = False
    with tempfile.TemporaryDirectory() as folder:
        GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
        for length in map(int, sys.argv[1:] or LENGTHS):
            for name in ("peasy", "bertviz", "transformer_lens"):
                found = measured(name, folder, length, sys.executable if name == "peasy" else python)
                told = found.get("error") or (
                    f"{found['seconds']:.2f} s, {found['peak'] / 2**20:,.0f} MiB, page {found['page'] / 2**20:.1f} MiB"
                )
                print(f"{length:>6} tokens  {name:<17} {told}", flush=True)
        for name in ("bertviz", "transformer_lens"):
            if not all(Path(f"{folder}/{each}.npy").exists() for each in ("peasy", name)):
                print(f"{name}: not compared at these lengths")
                continue
            ours = np.load(f"{folder}/peasy.npy")
            apart = float(np.abs(ours - np.load(f"{folder}/{name}.npy")).max())
            wrong |= apart > 1e-5
            print(f"{name}: weights differ by at most {apart:.1e}, at most 1e-05 is asked")
    return int(wrong)


if __name__ == "__main__":
    if len(sys.argv) == 4 and not sys.argv[1].isdecimal():
        child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
