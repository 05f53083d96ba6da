"""Training throughput: 6 layers, 6 heads, d_model 384, 16 sequences of 256 tokens, vocabulary of 65.

    python -m bench.throughput [rounds]

Against nanoGPT's architecture (`bench/nanogpt.py`), each in its own process, whole steps on random tokens. The default
of `peasy train gpt` runs at least 1.5 times as fast as nanoGPT's default (float32, eager); the same block with the same
fused AdamW is at least as fast, in float32 and, where the CPU supports it, in bfloat16. A missed
bound is exit code 1.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any

import torch

from bench import nanogpt
from bench.encoder import has_bfloat16
from bench.measure import Peer, Timing, alternate, machine

SHAPE = nanogpt.Shape(num_layers=6, num_heads=6, d_model=384, seq_len=256, batch_size=16)
TOKENS = SHAPE.batch_size * SHAPE.seq_len
BOUNDS = (
    ("default over nanoGPT's default", "nano", "default", 1.5),
    ("the same block and optimizer, float32", "nano_fused", "same_block", 1.0),
    ("the same block and optimizer, bfloat16", "nano_bfloat16", "same_block_bfloat16", 1.0),
)
"""Bounds: how many times as fast the second is as the first."""


@cache
def batch() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, SHAPE.vocab_size, (SHAPE.batch_size, SHAPE.seq_len + 1), generator=generator)


@cache
def nano_trainer(fused: bool) -> nanogpt.Trainer:
    return nanogpt.Trainer(nanogpt.NanoGPT(SHAPE), batch().flatten(), SHAPE, fused=fused)


def nano() -> float:
    return nano_trainer(fused=False).step()


def nano_fused() -> float:
    return nano_trainer(fused=True).step()


def nano_bfloat16() -> float:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return nano_trainer(fused=True).step()


SAME_BLOCK = {
    "position": {"kind": "learned"},
    "stack": {
        "token_shift": False,
        "attention": {"bias": False, "output_bias": False},
        "feedforward": {"activation": "gelu"},
        "norm": {"kind": "layer", "bias": False},
    },
}


def default() -> float:
    return our_step(precision="auto")()


def same_block() -> float:
    return our_step(precision="float32", same=True)()


def same_block_bfloat16() -> float:
    return our_step(precision="bfloat16", same=True)()


@cache
def our_step(precision: str, same: bool = False) -> Callable[[], float]:
    """Return one step as in the training loop of `peasy train`."""
    from peasy.models.build import build
    from peasy.models.preset import preset
    from peasy.training.learner import GradientLearner, choose_precision
    from peasy.training.objective import NextToken
    from peasy.training.optimizer import AdamWConfig, Optimizer
    from peasy.training.recipe import make_recipe

    recipe: Any = make_recipe("gpt", "base")
    changes = SAME_BLOCK if same else {}
    config = preset("gpt-base", vocab_size=SHAPE.vocab_size, max_seq_len=SHAPE.seq_len, **changes)
    stack: Any = config.stack
    sizes = (stack.num_layers, stack.attention.num_heads, config.d_model)
    assert sizes == (SHAPE.num_layers, SHAPE.num_heads, SHAPE.d_model)
    model = build(config, seed=0).train()
    dtype = choose_precision(precision, "cpu")
    optimizer_config = AdamWConfig(lr=1e-3, weight_decay=0.1, beta2=0.99) if same else recipe.optimizer
    optimizer = Optimizer(model, optimizer_config, bfloat16=dtype == "bfloat16")
    learner = GradientLearner(model, NextToken(), optimizer, seed=0, grad_clip=1.0, precision=dtype)
    micro_batch = {"ids": batch()[:, :-1], "targets": batch()[:, 1:]}
    return lambda: learner.step([micro_batch], 1, 0.1).loss


def violates(timings: dict[str, Timing], description: str, slow: str, fast: str, minimum: float) -> bool:
    if fast not in timings:
        print(f"{description}: not timed, this CPU has no bfloat16 instructions")
        return False
    ratio = timings[slow].ratio_to(timings[fast])
    print(f"{description}: {ratio:.2f} times as fast, at least {minimum}{'' if ratio >= minimum else '   MISSED'}")
    return ratio < minimum


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    names = [
        "nano",
        "nano_fused",
        "same_block",
        "default",
        *(["nano_bfloat16", "same_block_bfloat16"] if has_bfloat16() else []),
    ]
    with ExitStack() as exit_stack:
        peers = {name: exit_stack.enter_context(Peer(f"bench.throughput:{name}")) for name in names}
        timings = alternate(rounds, warm_up=1, **peers)
    for timing in timings.values():
        print(timing, f"  {TOKENS / timing.median:,.0f} tokens/s")
    return int(max([violates(timings, *bound) for bound in BOUNDS]))


if __name__ == "__main__":
    sys.exit(main())
