"""What running and looking cost: the GPT-2-small shape beside transformers, same weights, each in its own process.

    python -m bench.forward [rounds]

Float32, one text of 512 and of 1,024 tokens: at least as fast as transformers with its fused attention; the weights of
one layer cost at most 5 % more than none; at 1,024 tokens all layers take no longer than transformers' eager
`output_attentions`. A bound that is broken is exit code 1.
"""

import os
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from typing import Any

import torch

from bench.measure import Measured, Peer, alternate, machine

BOUNDS = (
    ("forward, time over transformers' fused", "peasy", "sdpa", 1.0),
    ("one layer's weights, time over none", "one_layer", "peasy", 1.05),
    ("all layers' weights, time over transformers' eager", "all_layers", "eager", 1.0),
)
"""What is promised: this candidate's time over that one's, at most so much."""


@cache
def ids() -> torch.Tensor:
    length = int(os.environ["BENCH_LENGTH"])
    return torch.randint(0, 50257, (1, length), generator=torch.Generator().manual_seed(length))


@cache
def ours() -> torch.nn.Module:
    from peasy.checkpoint.huggingface import load_model, read_folder

    return load_model(read_folder(os.environ["BENCH_FOLDER"]))


@cache
def theirs(attention: str) -> Any:
    from transformers import GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(os.environ["BENCH_FOLDER"], attn_implementation=attention).eval()


@torch.inference_mode()
def peasy() -> torch.Tensor:
    return ours()(ids())


@torch.inference_mode()
def one_layer() -> list[torch.Tensor]:
    return _watched(layers=[5])


@torch.inference_mode()
def all_layers() -> list[torch.Tensor]:
    return _watched()


def _watched(**asked: list[int]) -> list[torch.Tensor]:
    from peasy.nn import Tap

    seen: list[torch.Tensor] = []
    ours()(ids(), tap=Tap(lambda one: seen.append(one.array), **asked))
    return seen


@torch.inference_mode()
def sdpa() -> torch.Tensor:
    return theirs("sdpa")(ids(), use_cache=False).logits


@torch.inference_mode()
def eager() -> tuple[torch.Tensor, ...]:
    return theirs("eager")(ids(), output_attentions=True, use_cache=False).attentions


def agree() -> None:
    """The same numbers, before any time is taken. Called in a process of its own."""
    torch.testing.assert_close(peasy(), sdpa(), atol=1e-3, rtol=0)
    for found, expected in zip(all_layers(), eager(), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def measure(length: int, rounds: int, folder: str) -> bool:
    """Is any bound broken at this length?"""
    where = {"BENCH_LENGTH": str(length), "BENCH_FOLDER": folder}
    with Peer("bench.forward:agree", **where) as agreeing:
        agreeing()
    with ExitStack() as open_peers:
        names = ("peasy", "sdpa", "one_layer", "all_layers", "eager")
        peers = {name: open_peers.enter_context(Peer(f"bench.forward:{name}", **where)) for name in names}
        took = alternate(rounds, **peers)
    print(f"\nGPT-2 small, {length} tokens, float32", *took.values(), sep="\n")
    return max([broken(took, *bound) for bound in BOUNDS if length == 1024 or bound[1] != "all_layers"])


def broken(took: dict[str, Measured], says: str, fast: str, slow: str, most: float) -> bool:
    ratio = took[fast].over(took[slow])
    print(f"{says}: {ratio:.3f}, at most {most:.3f}{'' if ratio <= most else '   BROKEN'}")
    return ratio > most


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
