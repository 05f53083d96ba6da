"""What looking costs: GPT-2 small at 1,024 tokens beside transformers, and one layer at 8,192 and 16,384 tokens.

    python -m bench.looking [rounds] [long|short]

Same weights, one run, every candidate in a process of its own, with its own peak of memory (the largest resident size
of one call over what the process held before it). One head of one layer: at most 1.05 times the unwatched forward. All
144 heads: at most transformers' eager `output_attentions`, in at most 0.8 of its memory; they are kept in float16,
which is stated. 8,192 tokens, one attention of 12 heads: an overview of all heads and 100 exact rows in at most 2.5
times the fused attention and at most half a GiB; 16,384 in the same memory. A bound that is broken is exit code 1.
"""

import ctypes
import gc
import os
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bench.forward import ids, ours, theirs
from bench.measure import Measured, Peer, alternate, machine, timed

GIB = 1 << 30
HEADS, WIDTH, ROWS = 12, 64, 100


@torch.inference_mode()
def unwatched() -> torch.Tensor:
    return ours()(ids())


@torch.inference_mode()
def one_head() -> Any:
    return _recorded(layers=(5,), heads=(3,))


@torch.inference_mode()
def all_heads() -> Any:
    return _recorded(storage="float16")


@torch.inference_mode()
def eager() -> Any:
    return theirs("eager")(ids(), output_attentions=True, use_cache=False).attentions


def _recorded(storage: str = "float32", **asked: Any) -> Any:
    from peasy.inspection.capture_spec import CaptureSpec
    from peasy.inspection.recorder import Recorder

    recorder = Recorder(CaptureSpec(**asked), {"decoder": ids().shape[1]}, storage)
    ours()(ids(), tap=recorder.tap())
    return recorder.captures()


@cache
def layer() -> tuple[Any, torch.Tensor]:
    """One attention of GPT-2 small's shape, and a long stream to go through it."""
    from peasy.nn import config as nn_config
    from peasy.nn.attention import Attention
    from peasy.nn.module_path import ModulePath

    torch.manual_seed(0)
    length = int(os.environ["BENCH_LENGTH"])
    made = Attention(
        HEADS * WIDTH,
        nn_config.AttentionConfig(HEADS),
        nn_config.LayerNormConfig(),
        ModulePath("decoder", 0, "attention"),
    )
    return made.eval(), torch.randn(1, length, HEADS * WIDTH)


def _pass(tap: Any = None) -> torch.Tensor:
    from peasy.nn.forward_context import ForwardContext
    from peasy.nn.mask import MaskSpec

    attention, stream = layer()
    places = torch.arange(stream.shape[1])[None]
    return attention(stream, ForwardContext(MaskSpec(places, places, True), tap=tap))


@torch.inference_mode()
def fused() -> torch.Tensor:
    return _pass()


@torch.inference_mode()
def overview() -> Any:
    """All heads in tiles of 64 tokens, and 100 rows exactly, in the same pass."""
    from peasy.inspection.capture_spec import CaptureSpec
    from peasy.inspection.recorder import Recorder
    from peasy.inspection.tiles import Tiler

    length = layer()[1].shape[1]
    rows = tuple(range(0, length, length // ROWS))[:ROWS]
    recorder, tiler = Recorder(CaptureSpec(rows=rows), {"decoder": length}), Tiler(64)
    _pass(recorder.tap(tiler.on_attention))
    return recorder.captures(), tiler.overviews


def agree() -> None:
    """The same numbers, before any time is taken."""
    for found, expected in zip(all_heads(), eager(), strict=True):
        torch.testing.assert_close(torch.from_numpy(found.array).float(), expected[0], atol=1e-3, rtol=0)


@torch.inference_mode()
def agree_long() -> None:
    """Every exact row against the formula's own, and every tile of one head against its whole matrix."""
    from peasy.nn.tap import Tap

    (rows,), (tiles,) = overview()
    seen: list[Any] = []
    _pass(Tap(seen.append, heads=[3]))
    matrix = seen[0].array[0, 0]
    torch.testing.assert_close(torch.from_numpy(rows.array[3]), matrix[list(rows.rows)], atol=1e-6, rtol=0)
    expected = matrix.unflatten(0, (-1, 64)).unflatten(2, (-1, 64)).mean(dim=(1, 3))
    torch.testing.assert_close(torch.from_numpy(tiles.tiles[3]), expected, atol=1e-6, rtol=0)


def peak(function: str) -> None:
    """Not a time: the largest resident size of one call over what was held before, in bytes."""
    call = globals()[function]
    call()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the first call gave back must not hide what the second takes
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    kept = call()
    print(f"peak {_resident('VmHWM') - before} {len(kept) if hasattr(kept, '__len__') else 1}", file=sys.stderr)


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} here")


def peak_of(function: str, **where: str) -> int:
    """The same in a process of its own."""
    import subprocess

    command = [sys.executable, "-c", f"from bench.looking import peak; peak({function!r})"]
    ran = subprocess.run(command, env=os.environ | where, capture_output=True, text=True, check=True)
    return int(next(line for line in ran.stderr.splitlines() if line.startswith("peak ")).split()[1])


def say(says: str, value: float, most: float) -> bool:
    print(f"{says}: {value:.3f}, at most {most:.3f}{'' if value <= most else '   BROKEN'}")
    return value > most


def take_turns(names: tuple[str, ...], rounds: int, **where: str) -> dict[str, Measured]:
    with ExitStack() as open_peers:
        peers = {name: open_peers.enter_context(Peer(f"bench.looking:{name}", **where)) for name in names}
        return alternate(rounds, 1, **peers)


def short(rounds: int, folder: str) -> bool:
    where = {"BENCH_LENGTH": "1024", "BENCH_FOLDER": folder}
    with Peer("bench.looking:agree", **where) as agreeing:
        timed(agreeing)
    took = take_turns(("unwatched", "one_head", "all_heads", "eager"), rounds, **where)
    print("\nGPT-2 small, 1,024 tokens, float32", *took.values(), sep="\n")
    memory = {name: peak_of(name, **where) for name in ("unwatched", "all_heads", "eager")}
    print("peak over base:", ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in memory.items()))
    return max([
        say("one head of one layer, time over unwatched", took["one_head"].over(took["unwatched"]), 1.05),
        say("all 144 heads (float16), time over eager", took["all_heads"].over(took["eager"]), 1.0),
        say("all 144 heads (float16), peak over eager's", memory["all_heads"] / memory["eager"], 0.8),
    ])  # fmt: skip


def long(rounds: int) -> bool:
    broken = False
    for length in (8192, 16384):
        where = {"BENCH_LENGTH": str(length)}
        if length == 8192:
            with Peer("bench.looking:agree_long", **where) as agreeing:
                timed(agreeing)
            took = take_turns(("fused", "overview"), rounds, **where)
            print(f"\none attention of 12 heads, {length:,} tokens", *took.values(), sep="\n")
            broken |= say("overview and 100 rows, time over fused", took["overview"].over(took["fused"]), 2.5)
        memory = peak_of("overview", **where) / GIB
        broken |= say(f"{length:,} tokens: peak over base, GiB", memory, 0.5)
    return broken


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    torch.manual_seed(0)
    parts = sys.argv[2:] or ["long", "short"]
    broken = "long" in parts and long(rounds)
    if "short" not in parts:
        return int(broken)
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError as missing:
        print(f"not measured beside transformers: {missing}")
        return int(broken)
    with tempfile.TemporaryDirectory() as folder:
        GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
        broken |= short(rounds, folder)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
