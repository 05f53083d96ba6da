"""How well a model writes Shakespeare after the time that nanoGPT's recipe for a CPU takes on the same machine.

    python -m bench.shakespeare input.txt [seeds] [seconds]

First the peer (`bench/nanogpt.py`) learns in a process of its own: 4 layers, 4 heads, 128 wide, context 64, batch 12,
2,000 steps; only its steps are timed. Then, with so much time and nothing else set, for each seed

    peasy train gpt --data input.txt --minutes ... --set tokenizer.by=characters

and the same with `--set model.stack.shift=false --set model.embedding.ngrams=1`, which leaves a plain Transformer. All
that a run does on the way (validation, samples, checkpoints) is in its time. `peasy evaluate` then reads the held-out
last tenth: windows of the model's context that do not overlap, mean over all characters. Promised are medians: at most
1.58 for the plain one and 1.53 with the token shift and vectors of n-grams; a broken bound is exit code 1. With
`seconds` the peer is not asked again how long it takes.
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

SHAPE = nanogpt.Shape(layers=4, heads=4, width=128, context=64, batch=12)
STEPS = 2000
PLAIN = ("--set", "model.stack.shift=false", "--set", "model.embedding.ngrams=1")
BOUNDS = {"plain Transformer": (PLAIN, 1.58), "with token shift and n-grams": ((), 1.53)}


def text() -> str:
    return Path(os.environ["BENCH_TEXT"]).read_text(encoding="utf-8")


def nano() -> None:
    """All steps of the peer; what it ends at is told aside."""
    whole = text()
    known = {character: index for index, character in enumerate(sorted(set(whole)))}
    ids = torch.tensor([known[character] for character in whole])
    cut = int(0.9 * len(ids))
    steps = nanogpt.Steps(nanogpt.Peer(SHAPE), ids[:cut], SHAPE)
    for step in range(STEPS):
        steps.step(nanogpt.rate(step, STEPS))
    torch.save((steps.model.state_dict(), ids[cut:]), os.environ["BENCH_PEER"])


def nano_loss(file: str) -> float:
    """The peer's mean loss over the held-out characters, in windows of its context that do not overlap."""
    weights, held = torch.load(file)
    model = nanogpt.Peer(SHAPE)
    model.load_state_dict(weights)
    count = (len(held) - 1) // SHAPE.context
    inputs, targets = (held[at : at + count * SHAPE.context].view(count, -1) for at in (0, 1))
    with torch.inference_mode():
        pieces = zip(inputs.split(128), targets.split(128), strict=True)
        return sum(float(model(x, y)) * len(x) for x, y in pieces) / count


def peasy(*words: str) -> dict[str, Any]:
    """What one command answers."""
    command = [sys.executable, "-m", "peasy", *words, "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])["result"]


def learn(data: str, seconds: float, seed: int, folder: str, *more: str) -> float:
    """The loss on the held-out tenth after so many seconds."""
    words = ("--data", data, "--minutes", f"{seconds / 60:.4f}", "--set", "tokenizer.by=characters", *more)
    peasy("train", "gpt", *words, "--seed", str(seed), "--run", folder)
    found = peasy("evaluate", folder, data)["measures"]["loss"]
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["event"] == "step"][-1]
    took = f"{last['step']} steps, {last['tokens']:,} tokens, {last['elapsed']:.1f} s"
    print(f"  seed {seed}: {found:.4f}   {took}", flush=True)
    return found


def time_peer(data: str, folder: str) -> float:
    """How long the peer takes."""
    file = f"{folder}/peer.pt"
    with Peer("bench.shakespeare:nano", BENCH_TEXT=data, BENCH_PEER=file) as peer:
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
    broken = False
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PEASY_HOME"] = folder
        seconds = float(sys.argv[3]) if len(sys.argv) > 3 else time_peer(data, folder)
        for number, (name, (more, most)) in enumerate(BOUNDS.items()):
            print(f"{name}, {seconds:.1f} s")
            losses = [learn(data, seconds, seed, f"{folder}/{number}-{seed}", *more) for seed in range(seeds)]
            found = statistics.median(losses)
            broken |= found > most
            print(f"{name}: median {found:.4f} ({min(losses):.4f} to {max(losses):.4f}), at most {most}")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
