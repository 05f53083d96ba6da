"""Speculative decoding with n-gram drafts against plain greedy decoding, on prompts that repeat a passage.

    python -m bench.speculation [MODEL] [rounds]

MODEL is a run, a folder or a name; without one, a small gpt is trained on the standard library for three minutes first.
Five passages of the corpus, each three times in a row, are continued by 256 tokens, one prompt at a time. The tokens
must be the same; speculation must be at least 1.5 times as fast over all five. A missed bound is exit code 1.
"""

import sys
import tempfile
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import peasy
from bench.measure import alternate, machine
from peasy.datasets import open_corpus
from peasy.generation.decode import decode
from peasy.generation.request import Token
from peasy.generation.sampling_params import SamplingParams
from peasy.generation.speculative_decoding import SpeculationStats

speculative_decode = partial(decode, speculative=True)

MIN_SPEEDUP, NEW_TOKENS, NUM_PASSAGES, PASSAGE_TOKENS = 1.5, 256, 5, 40


def passages(loaded: Any, data: str) -> list[list[int]]:
    """Return the first tokens of the first long enough texts of the corpus, each repeated three times."""
    prefixes = (list(loaded.tokenizer.encode(text[:2000]).ids[:PASSAGE_TOKENS]) for text in open_corpus(data).texts())
    return [ids * 3 for ids in islice((ids for ids in prefixes if len(ids) == PASSAGE_TOKENS), NUM_PASSAGES)]


def generate(decode_fn: Any, model: Any, prompts: list[list[int]], stats: list[SpeculationStats]) -> list[list[int]]:
    """Continue the prompts one after the other; return the generated ids and append the statistics."""
    generated = []
    for prompt in prompts:
        ids = []
        for event in decode_fn(model, [prompt], SamplingParams(max_tokens=NEW_TOKENS)):
            if isinstance(event, Token):
                ids.append(event.sampled.id)
            elif isinstance(event, SpeculationStats):
                stats.append(event)
        generated.append(ids)
    return generated


def measure(loaded: Any, data: str, rounds: int) -> bool:
    """Return True if the bound is missed or the tokens differ."""
    model, prompts, stats = loaded.model.eval(), passages(loaded, data), list[SpeculationStats]()
    plain, fast = (generate(decode_fn, model, prompts, stats) for decode_fn in (decode, speculative_decode))
    print(f"{loaded!r}: {len(prompts)} prompts of {len(prompts[0])} tokens, {NEW_TOKENS} new tokens each, greedy")
    for event in stats:
        print(" ", event.summary())
    if plain != fast:
        print("the tokens differ   MISSED")
        return True
    timings = alternate(
        rounds,
        plain=lambda: generate(decode, model, prompts, []),
        speculation=lambda: generate(speculative_decode, model, prompts, []),
    )
    print(*timings.values(), sep="\n")
    ratio = timings["plain"].ratio_to(timings["speculation"])
    print(
        f"equal tokens, {ratio:.2f} times as fast, at least {MIN_SPEEDUP}{'' if ratio >= MIN_SPEEDUP else '   MISSED'}"
    )
    return ratio < MIN_SPEEDUP


def main() -> int:
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    if len(sys.argv) > 1:
        return int(measure(peasy.load(sys.argv[1]), "stdlib", rounds))
    with tempfile.TemporaryDirectory() as folder:
        trained = peasy.train("gpt", data="stdlib", preset="speedrun", minutes=3, run=str(Path(folder) / "run"))
        return int(measure(trained.model, "stdlib", rounds))


if __name__ == "__main__":
    sys.exit(main())
