"""Validation loss on tiny Shakespeare after the time that nanoGPT's CPU recipe takes on the same machine.

    python -m bench.shakespeare input.txt [seeds] [seconds]

First the peer (`bench/nanogpt.py`) trains in its own process: 4 layers, 4 heads, d_model 128, sequence length 64, batch
size 12, 2,000 steps; only its steps are timed. Then, with that time budget and default settings, for each seed

    peasy train gpt --data input.txt --minutes ... --set tokenizer.algorithm=characters

which is a plain Transformer, and the same with `--preset speedrun`: token shift and n-gram embeddings. The time
includes everything in a run (validation, samples, checkpoints). `peasy evaluate` then measures the loss on the last
tenth, the validation split: non-overlapping windows of the model's context, mean over all characters. Bounds on the
median: at most 1.58 for the plain Transformer and 1.53 with token shift and n-gram embeddings; a missed bound is exit
code 1. With `seconds` the peer is not timed again.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from bench import nanogpt
from bench.measure import Peer, machine

SHAPE = nanogpt.Shape(num_layers=4, num_heads=4, d_model=128, seq_len=64, batch_size=12)
STEPS = 2000
SPEEDRUN = ("--preset", "speedrun")
BOUNDS = {"plain Transformer": ((), 1.58), "with token shift and n-grams": (SPEEDRUN, 1.53)}


def text() -> str:
    return Path(os.environ["BENCH_TEXT"]).read_text(encoding="utf-8")


def train_nano() -> None:
    """Train the peer and save its weights with the validation ids."""
    characters = text()
    vocabulary = {character: index for index, character in enumerate(sorted(set(characters)))}
    ids = torch.tensor([vocabulary[character] for character in characters])
    split = int(0.9 * len(ids))
    trainer = nanogpt.Trainer(nanogpt.NanoGPT(SHAPE), ids[:split], SHAPE)
    for step in range(STEPS):
        trainer.step(nanogpt.learning_rate(step, STEPS))
    torch.save((trainer.model.state_dict(), ids[split:]), os.environ["BENCH_PEER"])


def nano_loss(file: str) -> float:
    """Return the peer's mean validation loss, in non-overlapping windows."""
    weights, ids = torch.load(file)
    model = nanogpt.NanoGPT(SHAPE)
    model.load_state_dict(weights)
    count = (len(ids) - 1) // SHAPE.seq_len
    inputs, targets = (ids[start : start + count * SHAPE.seq_len].view(count, -1) for start in (0, 1))
    with torch.inference_mode():
        batches = zip(inputs.split(128), targets.split(128), strict=True)
        return sum(float(model(x, y)) * len(x) for x, y in batches) / count


def peasy(*arguments: str) -> dict[str, Any]:
    """Run one command and return its result."""
    command = [sys.executable, "-m", "peasy", *arguments, "--json", "--quiet"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {finished.returncode}: {finished.stdout}{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])["result"]


def train(data: str, seconds: float, seed: int, folder: str, *settings: str) -> float:
    """Train for this many seconds and return the validation loss."""
    arguments = (
        "--data",
        data,
        "--minutes",
        f"{seconds / 60:.4f}",
        "--set",
        "tokenizer.algorithm=characters",
        *settings,
    )
    peasy("train", "gpt", *arguments, "--seed", str(seed), "--run", folder)
    loss = peasy("evaluate", folder, data)["measures"]["loss"]
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["event"] == "step"][-1]
    summary = f"{last['step']} steps, {last['tokens']:,} tokens, {last['elapsed_seconds']:.1f} s"
    print(f"  seed {seed}: {loss:.4f}   {summary}", flush=True)
    return loss


def time_peer(data: str, folder: str) -> float:
    """Return how many seconds the peer takes."""
    file = f"{folder}/peer.pt"
    with Peer("bench.shakespeare:train_nano", BENCH_TEXT=data, BENCH_PEER=file) as peer:
        seconds = peer()
    print(f"nanoGPT's recipe: {STEPS} steps in {seconds:.1f} s, loss {nano_loss(file):.4f}", flush=True)
    return seconds


def main() -> int:
    data = sys.argv[1] if len(sys.argv) > 1 else "input.txt"
    if not Path(data).is_file():
        print(f"not measured: there is no {data}; give the path of tiny Shakespeare's input.txt")
        return 0
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {seeds} seeds")
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PEASY_HOME"] = folder
        seconds = float(sys.argv[3]) if len(sys.argv) > 3 else time_peer(data, folder)
        for number, (name, (settings, maximum)) in enumerate(BOUNDS.items()):
            print(f"{name}, {seconds:.1f} s")
            losses = [train(data, seconds, seed, f"{folder}/{number}-{seed}", *settings) for seed in range(seeds)]
            median = statistics.median(losses)
            missed |= median > maximum
            print(f"{name}: median {median:.4f} ({min(losses):.4f} to {max(losses):.4f}), at most {maximum}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
