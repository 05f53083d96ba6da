"""Attention capture: GPT-2 small at 1,024 tokens against transformers, and one layer at 8,192 and 16,384 tokens.

    python -m bench.inspection [rounds] [long|short]

Same weights, one run, every candidate in its own process, with its own peak memory (largest resident size during one
call minus that before it). One head of one layer: at most 1.05 times the plain forward pass. All 144 heads: at most
the time of transformers' eager `output_attentions`, in at most 0.8 of its memory; they are stored in float16. 8,192
tokens, one attention of 12 heads: a tiled overview of all heads and 100 exact rows in at most 2.5 times the fused
attention and at most half a GiB; 16,384 tokens in the same memory. A missed bound is exit code 1.
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

from bench.forward import ids, peasy_model, transformers_model
from bench.measure import Peer, Timing, alternate, machine, time_call

GIB = 1 << 30
HEADS, WIDTH, ROWS = 12, 64, 100


@torch.inference_mode()
def plain_forward() -> torch.Tensor:
    return peasy_model()(ids())


@torch.inference_mode()
def one_head() -> Any:
    return _capture(layers=(5,), heads=(3,))


@torch.inference_mode()
def all_heads() -> Any:
    return _capture(storage="float16")


@torch.inference_mode()
def eager() -> Any:
    return transformers_model("eager")(ids(), output_attentions=True, use_cache=False).attentions


def _capture(storage: str = "float32", **spec: Any) -> Any:
    from peasy.inspection.capture import CaptureSpec, Recorder

    recorder = Recorder(CaptureSpec(**spec), {"decoder": ids().shape[1]}, storage)
    peasy_model()(ids(), tap=recorder.tap())
    return tuple(recorder.captured.values())


@cache
def layer() -> tuple[Any, torch.Tensor]:
    """Return one attention layer of GPT-2 small's shape, and a long input."""
    from peasy.nn import config as nn_config
    from peasy.nn.attention import Attention
    from peasy.nn.module_path import ModulePath

    torch.manual_seed(0)
    length = int(os.environ["BENCH_LENGTH"])
    attention = Attention(
        HEADS * WIDTH,
        nn_config.AttentionConfig(HEADS),
        nn_config.LayerNormConfig(),
        ModulePath("decoder", 0, "attention"),
    )
    return attention.eval(), torch.randn(1, length, HEADS * WIDTH)


def _forward(tap: Any = None) -> torch.Tensor:
    from peasy.nn.forward_context import ForwardContext
    from peasy.nn.mask import MaskSpec

    attention, x = layer()
    positions = torch.arange(x.shape[1])[None]
    return attention(x, ForwardContext(MaskSpec(positions, positions, True), tap=tap))


@torch.inference_mode()
def fused() -> torch.Tensor:
    return _forward()


@torch.inference_mode()
def overview() -> Any:
    """Capture all heads in tiles of 64 tokens and 100 exact rows, in one forward pass."""
    from peasy.inspection.capture import CaptureSpec, Recorder
    from peasy.inspection.tiles import Tiler

    length = layer()[1].shape[1]
    rows = tuple(range(0, length, length // ROWS))[:ROWS]
    recorder, tiler = Recorder(CaptureSpec(rows=rows), {"decoder": length}), Tiler(64)
    _forward(recorder.tap(tiler.on_attention))
    return tuple(recorder.captured.values()), tiler.overviews


def check_equal() -> None:
    """Check that results are equal, before timing."""
    for captured, expected in zip(all_heads(), eager(), strict=True):
        torch.testing.assert_close(torch.from_numpy(captured.array).float(), expected[0], atol=1e-3, rtol=0)


@torch.inference_mode()
def check_equal_long() -> None:
    """Check the exact rows of one head and all its tiles against the full matrix."""
    from peasy.nn.tap import Tap

    (rows,), (tiles,) = overview()
    activations: list[Any] = []
    _forward(Tap(activations.append, heads=[3]))
    matrix = activations[0].array[0, 0]
    torch.testing.assert_close(torch.from_numpy(rows.array[3]), matrix[list(rows.rows)], atol=1e-6, rtol=0)
    expected = matrix.unflatten(0, (-1, 64)).unflatten(2, (-1, 64)).mean(dim=(1, 3))
    torch.testing.assert_close(torch.from_numpy(tiles.tiles[3]), expected, atol=1e-6, rtol=0)


def print_peak(function: str) -> None:
    """Print the peak memory of one call over the resident size before it, in bytes."""
    call = globals()[function]
    call()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory freed by the first call must not hide what the second takes
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    result = call()  # kept alive until the peak is read
    print(f"peak {_resident('VmHWM') - before}", file=sys.stderr)
    del result


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} here")


def peak_of(function: str, **environment: str) -> int:
    """Return the peak memory of a function, measured in its own process."""
    import subprocess

    command = [sys.executable, "-c", f"from bench.inspection import print_peak; print_peak({function!r})"]
    finished = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return int(next(line for line in finished.stderr.splitlines() if line.startswith("peak ")).split()[1])


def exceeds(description: str, value: float, maximum: float) -> bool:
    print(f"{description}: {value:.3f}, at most {maximum:.3f}{'' if value <= maximum else '   MISSED'}")
    return value > maximum


def time_all(names: tuple[str, ...], rounds: int, **environment: str) -> dict[str, Timing]:
    with ExitStack() as exit_stack:
        peers = {name: exit_stack.enter_context(Peer(f"bench.inspection:{name}", **environment)) for name in names}
        return alternate(rounds, 1, **peers)


def measure_short(rounds: int, folder: str) -> bool:
    environment = {"BENCH_LENGTH": "1024", "BENCH_FOLDER": folder}
    with Peer("bench.inspection:check_equal", **environment) as check:
        time_call(check)
    timings = time_all(("plain_forward", "one_head", "all_heads", "eager"), rounds, **environment)
    print("\nGPT-2 small, 1,024 tokens, float32", *timings.values(), sep="\n")
    memory = {name: peak_of(name, **environment) for name in ("plain_forward", "all_heads", "eager")}
    print("peak over base:", ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in memory.items()))
    one_head_ratio = timings["one_head"].ratio_to(timings["plain_forward"])
    return max([
        exceeds("one head of one layer, time over the plain forward pass", one_head_ratio, 1.05),
        exceeds("all 144 heads (float16), time over eager", timings["all_heads"].ratio_to(timings["eager"]), 1.0),
        exceeds("all 144 heads (float16), peak over eager's", memory["all_heads"] / memory["eager"], 0.8),
    ])  # fmt: skip


def measure_long(rounds: int) -> bool:
    missed = False
    for length in (8192, 16384):
        environment = {"BENCH_LENGTH": str(length)}
        if length == 8192:
            with Peer("bench.inspection:check_equal_long", **environment) as check:
                time_call(check)
            timings = time_all(("fused", "overview"), rounds, **environment)
            print(f"\none attention of 12 heads, {length:,} tokens", *timings.values(), sep="\n")
            missed |= exceeds(
                "overview and 100 rows, time over fused", timings["overview"].ratio_to(timings["fused"]), 2.5
            )
        memory = peak_of("overview", **environment) / GIB
        missed |= exceeds(f"{length:,} tokens: peak over base, GiB", memory, 0.5)
    return missed


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    torch.manual_seed(0)
    parts = sys.argv[2:] or ["long", "short"]
    missed = "long" in parts and measure_long(rounds)
    if "short" not in parts:
        return int(missed)
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError as missing:
        print(f"not measured beside transformers: {missing}")
        return int(missed)
    with tempfile.TemporaryDirectory() as folder:
        GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
        missed |= measure_short(rounds, folder)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
