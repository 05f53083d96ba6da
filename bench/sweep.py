"""Activation patching of all 144 heads of GPT-2 small, 64 tokens: peasy's sweep against TransformerLens.

    BENCH_PEERS=/path/to/python python -m bench.sweep [rounds] [layers]

`BENCH_PEERS` is an interpreter with transformer_lens (peasy need not be installed there). Same weights, each tool in
its own process with the same threads; the effects must agree to 1e-3. At least as fast: a ratio above 1 is exit code 1.
Five rounds take about three minutes on two quiet cores; `python -m bench.sweep 2 1` tries it out with one layer.
"""

import json
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bench.measure import Peer, alternate, machine

LENGTH, FIRST, SECOND = 64, 7, 9


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the clean and the corrupted text as ids."""
    rng = torch.Generator().manual_seed(0)
    clean, corrupt = torch.randint(0, 50257, (2, 1, LENGTH), generator=rng)
    return clean, corrupt


@cache
def _peasy_model() -> Any:
    from peasy.commands.load import load

    return load(os.environ["BENCH_FOLDER"])


@cache
def _lens_model() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

    folder, eos = os.environ["BENCH_FOLDER"], "<|endoftext|>"  # it needs a tokenizer, which is not used here
    names = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({eos: 0}, unk_token=eos)), eos_token=eos)
    names.add_special_tokens({"bos_token": eos, "pad_token": eos})
    names.save_pretrained(f"{folder}/tokenizer")
    names = PreTrainedTokenizerFast.from_pretrained(f"{folder}/tokenizer")
    model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()
    lens = TransformerBridge.boot_transformers(folder, hf_model=model, tokenizer=names, device="cpu")
    lens.enable_compatibility_mode(disable_warnings=True, no_processing=True)
    return lens


def peasy() -> Any:
    clean, corrupt = texts()
    metric = lambda logits: logits[..., FIRST] - logits[..., SECOND]  # noqa: E731
    result = _peasy_model().sweep(clean[0].tolist(), corrupt[0].tolist(), metric=metric, over="heads")
    _save("peasy", result.values)
    return result


@torch.inference_mode()
def transformer_lens() -> Any:
    from transformer_lens import patching

    clean, corrupt = texts()
    lens = _lens_model()
    _, activations = lens.run_with_cache(clean, names_filter=lambda name: name.endswith("hook_z"))
    metric = lambda logits: logits[0, -1, FIRST] - logits[0, -1, SECOND]  # noqa: E731
    result = patching.get_act_patch_attn_head_out_all_pos(lens, corrupt, activations, metric)
    _save("transformer_lens", result)
    return result


def _save(name: str, effects: Any) -> None:
    Path(os.environ["BENCH_FOLDER"], f"{name}.json").write_text(json.dumps(effects.tolist()), encoding="utf-8")


def main() -> int:
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError as missing:
        print(f"not measured: {missing}")
        return 0
    rounds, layers = (int(given) for given in (*sys.argv[1:], *("5", "12")[len(sys.argv) - 1 :]))
    python = os.environ.get("BENCH_PEERS", sys.executable)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        GPT2LMHeadModel(GPT2Config(n_layer=layers)).save_pretrained(folder)
        with (
            Peer("bench.sweep:peasy", BENCH_FOLDER=folder) as ours,
            Peer("bench.sweep:transformer_lens", python=python, BENCH_FOLDER=folder, TQDM_DISABLE="1") as theirs,
        ):
            timings = alternate(rounds, warm_up=1, peasy=ours, transformer_lens=theirs)
        effects = [torch.tensor(json.loads(Path(folder, f"{name}.json").read_text())) for name in timings]
        difference = float((effects[0] - effects[1]).abs().max())
    ratio = timings["peasy"].ratio_to(timings["transformer_lens"])
    print(*timings.values(), sep="\n")
    heads = f"{12 * layers} heads, {LENGTH} tokens"
    print(f"{heads}: time over TransformerLens' {ratio:.3f}, at most 1; largest difference {difference:.1e}")
    return int(ratio > 1 or difference > 1e-3)


if __name__ == "__main__":
    sys.exit(main())
