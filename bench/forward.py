"""Forward pass and attention capture: GPT-2 small against transformers, same weights, each in its own process.

    python -m bench.forward [rounds]

Float32, one sequence of 512 and of 1,024 tokens: at least as fast as transformers with fused attention; capturing the
attention weights of one layer costs at most 5 %; at 1,024 tokens all layers take no longer than transformers' eager
`output_attentions`. A missed bound is exit code 1.
"""

import os
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from typing import Any

import torch

from bench.measure import Peer, Timing, alternate, machine

BOUNDS = (
    ("forward, time over transformers' fused", "peasy", "sdpa", 1.0),
    ("one layer's weights, time over none", "one_layer", "peasy", 1.05),
    ("all layers' weights, time over transformers' eager", "all_layers", "eager", 1.0),
)
"""Bounds: description, candidate, reference, largest ratio of their times."""


@cache
def ids() -> torch.Tensor:
    length = int(os.environ["BENCH_LENGTH"])
    return torch.randint(0, 50257, (1, length), generator=torch.Generator().manual_seed(length))


@cache
def peasy_model() -> torch.nn.Module:
    from peasy.checkpoint.huggingface import load_model, read_folder

    return load_model(read_folder(os.environ["BENCH_FOLDER"]))


@cache
def transformers_model(attention: str) -> Any:
    from transformers import GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(os.environ["BENCH_FOLDER"], attn_implementation=attention).eval()


@torch.inference_mode()
def peasy() -> torch.Tensor:
    return peasy_model()(ids())


@torch.inference_mode()
def one_layer() -> list[torch.Tensor]:
    return _captured_weights(layers=[5])


@torch.inference_mode()
def all_layers() -> list[torch.Tensor]:
    return _captured_weights()


def _captured_weights(layers: list[int] | None = None) -> list[torch.Tensor]:
    from peasy.nn import Tap

    weights: list[torch.Tensor] = []
    peasy_model()(ids(), tap=Tap(lambda activation: weights.append(activation.array), layers=layers))
    return weights


@torch.inference_mode()
def sdpa() -> torch.Tensor:
    return transformers_model("sdpa")(ids(), use_cache=False).logits


@torch.inference_mode()
def eager() -> tuple[torch.Tensor, ...]:
    return transformers_model("eager")(ids(), output_attentions=True, use_cache=False).attentions


def check_equal() -> None:
    """Check that results are equal, before timing. Called in its own process."""
    torch.testing.assert_close(peasy(), sdpa(), atol=1e-3, rtol=0)
    for actual, expected in zip(all_layers(), eager(), strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


def measure(length: int, rounds: int, folder: str) -> bool:
    """Return True if any bound is missed at this length."""
    environment = {"BENCH_LENGTH": str(length), "BENCH_FOLDER": folder}
    with Peer("bench.forward:check_equal", **environment) as check:
        check()
    with ExitStack() as exit_stack:
        names = ("peasy", "sdpa", "one_layer", "all_layers", "eager")
        peers = {name: exit_stack.enter_context(Peer(f"bench.forward:{name}", **environment)) for name in names}
        timings = alternate(rounds, **peers)
    print(f"\nGPT-2 small, {length} tokens, float32", *timings.values(), sep="\n")
    return max([violates(timings, *bound) for bound in BOUNDS if length == 1024 or bound[1] != "all_layers"])


def violates(timings: dict[str, Timing], description: str, candidate: str, reference: str, maximum: float) -> bool:
    ratio = timings[candidate].ratio_to(timings[reference])
    print(f"{description}: {ratio:.3f}, at most {maximum:.3f}{'' if ratio <= maximum else '   MISSED'}")
    return ratio > maximum


def main() -> int:
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError as missing:
        print(f"not measured: {missing}")
        return 0
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
        return int(max([measure(length, rounds, folder) for length in (512, 1024)]))


if __name__ == "__main__":
    sys.exit(main())
