"""Look-up speculation beside plain greedy decoding: a trained model continues prompts that repeat a passage.

    python -m bench.speculation [MODEL] [rounds]

MODEL is a run, a folder or a name; without one, a small gpt learns from the standard library for three minutes first.
Five passages of the corpus, each three times in a row, are continued by 256 tokens, one prompt at a time. The tokens
must be the same; speculation must be at least 1.5 times as fast over all five. A broken bound is exit code 1.
"""

import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import peasy
from bench.measure import alternate, machine
from peasy.datasets import open_corpus
from peasy.generation.decode import Token, decode
from peasy.generation.sampling import SamplingParams
from peasy.generation.speculative_decoding import SpeculationStats, speculative_decode

LEAST, TOKENS, PASSAGES, LENGTH = 1.5, 256, 5, 40


def passages(loaded: Any, data: str) -> list[list[int]]:
    """The beginnings of the first texts of the corpus that are long enough, as ids, each three times."""
    cut = (list(loaded.tokenizer.encode(text[:2000]).ids[:LENGTH]) for text in open_corpus(data).texts())
    return [ids * 3 for ids in islice((ids for ids in cut if len(ids) == LENGTH), PASSAGES)]


def write(decoding: Any, model: Any, prompts: list[list[int]], guessed: list[SpeculationStats]) -> list[list[int]]:
    """What is written after each prompt, one after the other."""
    written = []
    for prompt in prompts:
        ids = []
        for event in decoding(model, [prompt], SamplingParams(max_tokens=TOKENS)):
            if isinstance(event, Token):
                ids.append(event.sampled.id)
            elif isinstance(event, SpeculationStats):
                guessed.append(event)
        written.append(ids)
    return written


def measure(loaded: Any, data: str, rounds: int) -> bool:
    """Is the bound broken, or are the tokens not the same?"""
    model, prompts, guessed = loaded.model.eval(), passages(loaded, data), list[SpeculationStats]()
    plain, fast = (write(how, model, prompts, guessed) for how in (decode, speculative_decode))
    print(f"{loaded!r}: {len(prompts)} prompts of {len(prompts[0])} tokens, {TOKENS} new ones each, greedy")
    for event in guessed:
        print(" ", event.summary())
    if plain != fast:
        print("the tokens differ   BROKEN")
        return True
    took = alternate(
        rounds,
        plain=lambda: write(decode, model, prompts, []),
        speculation=lambda: write(speculative_decode, model, prompts, []),
    )
    print(*took.values(), sep="\n")
    ratio = took["plain"].over(took["speculation"])
    print(f"equal tokens, {ratio:.2f} times as fast, at least {LEAST}{'' if ratio >= LEAST else '   BROKEN'}")
    return ratio < LEAST


def main() -> int:
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    if len(sys.argv) > 1:
        return int(measure(peasy.load(sys.argv[1]), "stdlib", rounds))
    with tempfile.TemporaryDirectory() as folder:
        trained = peasy.train("gpt", data="stdlib", minutes=3, run=str(Path(folder) / "run"))
        return int(measure(trained.model, "stdlib", rounds))


if __name__ == "__main__":
    sys.exit(main())
