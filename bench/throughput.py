"""How fast a model learns, in tokens: 6 layers, 6 heads, 384 wide, 16 windows of 256 tokens, 65 tokens to choose from.

    python -m bench.throughput [rounds]

Beside nanoGPT's form (`bench/nanogpt.py`), each in its own process, whole steps on random tokens. What `peasy train
gpt` does by default runs at least 1.5 times as fast as nanoGPT's default (float32, eager); the same block with the same
fused AdamW is at least as fast, in float32 and, where the processor has instructions for it, in bfloat16. A broken
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
from bench.measure import Measured, Peer, alternate, machine

SHAPE = nanogpt.Shape(layers=6, heads=6, width=384, context=256, batch=16)
TOKENS = SHAPE.batch * SHAPE.context
BOUNDS = (
    ("default over nanoGPT's default", "nano", "default", 1.5),
    ("the same block and optimizer, float32", "nano_fused", "alike", 1.0),
    ("the same block and optimizer, bfloat16", "nano_half", "alike_half", 1.0),
)
"""What is promised: how many times as fast the second is as the first."""


@cache
def batch() -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, SHAPE.vocabulary, (SHAPE.batch, SHAPE.context + 1), generator=draw)


@cache
def their_steps(fused: bool) -> nanogpt.Steps:
    return nanogpt.Steps(nanogpt.Peer(SHAPE), batch().flatten(), SHAPE, fused=fused)


def nano() -> float:
    return their_steps(fused=False).step()


def nano_fused() -> float:
    return their_steps(fused=True).step()


def nano_half() -> float:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return their_steps(fused=True).step()


SAME_BLOCK = {
    "position": {"kind": "learned"},
    "stack": {
        "shift": False,
        "attention": {"bias": False, "output_bias": False},
        "feedforward": {"activation": "gelu"},
        "norm": {"kind": "layer", "bias": False},
    },
}


def default() -> float:
    return our_step(precision="auto")()


def alike() -> float:
    return our_step(precision="float32", same=True)()


def alike_half() -> float:
    return our_step(precision="bfloat16", same=True)()


@cache
def our_step(precision: str, same: bool = False) -> Callable[[], float]:
    """One step as the loop of `peasy train` does it."""
    from peasy.models.build import build
    from peasy.models.preset import preset
    from peasy.training.learner import GradientLearner
    from peasy.training.objective import NextToken
    from peasy.training.optimizer import AdamWConfig, Optimizer
    from peasy.training.precision import choose_precision
    from peasy.training.recipe import make_recipe

    recipe: Any = make_recipe("gpt", "base")
    changes = SAME_BLOCK if same else {}
    config = preset("gpt-base", vocabulary=SHAPE.vocabulary, context=SHAPE.context, **changes)
    stack: Any = config.stack  # type: ignore[union-attr]
    assert (stack.layers, stack.attention.heads, config.d_model) == (SHAPE.layers, SHAPE.heads, SHAPE.width)  # type: ignore[union-attr]
    model = build(config, seed=0).train()
    chosen = choose_precision(precision, "cpu")  # type: ignore[arg-type]
    rule = AdamWConfig(lr=1e-3, weight_decay=0.1, beta2=0.99) if same else recipe.optimizer
    optimizer = Optimizer(model, rule, bfloat16=chosen == "bfloat16")
    learner = GradientLearner(model, NextToken(), optimizer, seed=0, grad_clip=1.0, precision=chosen)
    part = {"ids": batch()[:, :-1], "targets": batch()[:, 1:]}
    return lambda: learner.step([part], 1, 0.1).loss


def broken(took: dict[str, Measured], says: str, slow: str, fast: str, least: float) -> bool:
    if fast not in took:
        print(f"{says}: not timed, this processor has no instructions for bfloat16")
        return False
    ratio = took[slow].over(took[fast])
    print(f"{says}: {ratio:.2f} times as fast, at least {least}{'' if ratio >= least else '   BROKEN'}")
    return ratio < least


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    names = ["nano", "nano_fused", "alike", "default", *(["nano_half", "alike_half"] if has_bfloat16() else [])]
    with ExitStack() as open_peers:
        peers = {name: open_peers.enter_context(Peer(f"bench.throughput:{name}")) for name in names}
        took = alternate(rounds, warm_up=1, **peers)
    for one in took.values():
        print(one, f"  {TOKENS / one.median:,.0f} tokens/s")
    return int(max([broken(took, *bound) for bound in BOUNDS]))


if __name__ == "__main__":
    sys.exit(main())
