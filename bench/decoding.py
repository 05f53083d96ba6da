"""Decoding speed against transformers, CTranslate2 and llama.cpp: one model, each in its own process.

    python -m bench.decoding [rounds] [batch ...]      # default: 5 rounds, batch 1 and 8
    python -m bench.decoding 3 8 int8 llama_q8         # only these, without comparing logits
    python -m bench.decoding cache [rounds]            # with and without the KV cache, at 256 and 1,000 tokens

GPT-2-small shape, random weights, prompts of 32 tokens, 128 new tokens, greedy. Before timing, the logits are compared
with those of transformers. float32 and int8 use the numba kernel if it is installed, "no_kernel" does not. Peers
are the extra `bench`; a missing one is reported and skipped.
A missed bound is exit code 1.
"""

import atexit
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from bench import llama
from bench.measure import Peer, Timing, alternate, machine

PROMPT_TOKENS, NEW_TOKENS, VOCAB_SIZE = 32, int(os.environ.get("BENCH_NEW", 128)), 50257
THREADS = int(os.environ.get("OMP_NUM_THREADS", 2))
BOUNDS = {
    1: (("float32", "transformers", 1.7), ("int8", "llama_q8", 0.9), ("int8_no_kernel", "llama_q8", 0.75),
        ("int8", "ctranslate2_int8", 1.6)),
    8: (("int8", "llama_q8", 1.1), ("int8", "ctranslate2_int8", 1.1)),
}  # fmt: skip
"""By batch size: candidate, reference, smallest speedup."""
MIN_CACHE_SPEEDUP = {256: 7.0, 1000: 25.0}


def batch_size() -> int:
    return int(os.environ["BENCH_BATCH"])


def work_dir() -> Path:
    return Path(os.environ["BENCH_HOME"])


def prompts(count: int | None = None, length: int = PROMPT_TOKENS) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, VOCAB_SIZE, (count or batch_size(), length), generator=generator).tolist()


# peasy.


@cache
def peasy_model(kind: str) -> Any:
    from peasy.checkpoint.huggingface import load_model, read_folder
    from peasy.generation.packed import pack, packing_of

    model = load_model(read_folder(work_dir() / "hf"))
    if kind == "unpacked":
        return model
    kind, _, option = kind.partition(" ")
    model = pack(model, kind, kernel=False if option == "no_kernel" else None)
    print(packing_of(model), file=sys.stderr)
    return model


@torch.inference_mode()
def greedy_decode(kind: str) -> list[list[int]]:
    """Prefill, then decode one token at a time with `forward_varlen`."""
    model, new = peasy_model(kind), prompts()
    states = [model.new_state(capacity=PROMPT_TOKENS + NEW_TOKENS) for _ in new]
    steps = []
    for _ in range(NEW_TOKENS):
        best = [int(logits.argmax()) for logits in model.forward_varlen(new, states)]
        steps.append(best)
        new = [[token] for token in best]
    return [list(ids) for ids in zip(*steps, strict=True)]


def float32() -> Any:
    return greedy_decode("float32")


def int8() -> Any:
    return greedy_decode("int8")


def float32_no_kernel() -> Any:
    """Decode without the numba kernel, with torch's operations."""
    return greedy_decode("float32 no_kernel")


def int8_no_kernel() -> Any:
    return greedy_decode("int8 no_kernel")


def generation_loop() -> Any:
    """Run the whole generation loop, with sampling and events."""
    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams

    return generate(peasy_model("float32"), prompts(), SamplingParams(max_tokens=NEW_TOKENS))


# Peers.


@cache
def transformers_model() -> Any:
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(work_dir() / "hf").eval()
    model.generation_config.eos_token_id = None
    return model


@torch.inference_mode()
def transformers() -> list[list[int]]:
    ids = torch.tensor(prompts())
    generated = transformers_model().generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0
    )
    return generated[:, PROMPT_TOKENS:].tolist()


@cache
def ctranslate2_generator(kind: str) -> Any:
    import ctranslate2

    return ctranslate2.Generator(
        str(work_dir() / f"ct2-{kind}"), compute_type=kind, intra_threads=THREADS, inter_threads=1
    )


def _ctranslate2(kind: str) -> list[list[int]]:
    tokens = [[str(token) for token in prompt] for prompt in prompts()]
    results = ctranslate2_generator(kind).generate_batch(
        tokens,
        max_length=NEW_TOKENS,
        min_length=NEW_TOKENS,
        sampling_topk=1,
        include_prompt_in_result=False,
        end_token=[],
    )
    generated = [[int(token) for token in result.sequences[0]] for result in results]
    assert all(len(ids) == NEW_TOKENS for ids in generated), [len(ids) for ids in generated]
    return generated


def ctranslate2_float32() -> Any:
    return _ctranslate2("float32")


def ctranslate2_int8() -> Any:
    return _ctranslate2("int8")


_open_servers = ExitStack()
"""llama.cpp's servers, until this process ends."""
atexit.register(_open_servers.close)


@cache
def _llama_port(kind: str) -> int:
    file = work_dir() / f"gguf-{kind}" / "model.gguf"
    return _open_servers.enter_context(llama.serve(file, batch_size(), THREADS))


def _llama(kind: str) -> None:
    llama.complete_all(_llama_port(kind), prompts(), NEW_TOKENS)


def llama_f32() -> Any:
    return _llama("f32")


def llama_q8() -> Any:
    return _llama("q8_0")


# Model files.


def make_files(folder: Path) -> None:
    """Write one random model in the format of every peer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from peasy.checkpoint.huggingface import load_model, read_folder

    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config()).save_pretrained(folder / "hf")
    model = load_model(read_folder(folder / "hf"))
    make_gguf(model, folder)
    for kind in ("float32", "int8"):
        make_ctranslate2(model, folder / f"ct2-{kind}", kind)


def make_gguf(model: Any, folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from peasy.checkpoint.gguf import write_gguf
    from peasy.tokenization import Tokenizer as PeasyTokenizer

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, "ab", *(f"w{n}" for n in range(VOCAB_SIZE - len(alphabet) - 1))]
    tokenizer = Tokenizer(
        models.BPE({piece: id for id, piece in enumerate(pieces)}, [("a", "b")])
    )  # llama.cpp needs at least one merge
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    for kind in ("f32", "q8_0"):
        peasy_tokenizer = PeasyTokenizer.from_json(tokenizer.to_str())
        write_gguf(folder / f"gguf-{kind}", model.config, model.state_dict(), peasy_tokenizer, tensor_type=kind)


def make_ctranslate2(model: Any, folder: Path, kind: str) -> None:
    try:
        from ctranslate2.specs import Activation, TransformerDecoderModelSpec
    except ImportError:
        return
    spec = TransformerDecoderModelSpec.from_config(12, 12, activation=Activation.GELUTanh)
    spec.decoder.scale_embeddings = False
    spec.decoder.embeddings.weight = to_numpy(model.embedding.token.weight)
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.decoder.position_encodings.encodings = to_numpy(model.embedding.position.weight)
    copy_norm(spec.decoder.layer_norm, model.decoder.norm)
    for layer, block in zip(spec.decoder.layer, model.decoder.blocks, strict=True):
        attention = block.attention
        copy_norm(layer.self_attention.layer_norm, block.attention_norm)
        copy_norm(layer.ffn.layer_norm, block.feedforward_norm)
        copy_linears(layer.self_attention.linear[0], attention.query, attention.key, attention.value)
        copy_linears(layer.self_attention.linear[1], attention.output)
        copy_linears(layer.ffn.linear_0, block.feedforward.up)
        copy_linears(layer.ffn.linear_1, block.feedforward.down)
    spec.register_vocabulary([str(token) for token in range(VOCAB_SIZE)])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = str(VOCAB_SIZE - 1)
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    folder.mkdir()
    spec.save(str(folder))


def to_numpy(array: torch.Tensor) -> Any:
    return array.detach().numpy()


def copy_norm(target: Any, norm: Any) -> None:
    target.gamma, target.beta = to_numpy(norm.weight), to_numpy(norm.bias)


def copy_linears(target: Any, *linears: Any) -> None:
    target.weight = to_numpy(torch.cat([linear.weight for linear in linears]))
    target.bias = to_numpy(torch.cat([linear.bias for linear in linears]))


# Measurement.


@torch.inference_mode()
def check_equal() -> None:
    """Compare the logits with those of transformers, before timing. Called in its own process."""
    ids = prompts(3)
    expected = transformers_model()(torch.tensor(ids)).logits
    exact, approximate = ("unpacked", "float32", "float32 no_kernel"), ("int8", "int8 no_kernel")
    for kind, maximum in [(kind, 1e-4) for kind in exact] + [(kind, None) for kind in approximate]:
        model = peasy_model(kind)
        logits = torch.stack(model.forward_varlen(ids, [model.new_state() for _ in ids], all_positions=True))
        difference = float((logits - expected).abs().max())
        error = float((logits - expected).norm() / expected.norm())
        top_1 = float((logits.argmax(-1) == expected.argmax(-1)).float().mean())
        print(f"{kind}: max difference {difference:.1e}, relative {error:.2%}, same top-1 {top_1:.1%}", file=sys.stderr)
        assert maximum is None or difference < maximum, "float32 logits must equal those of transformers"


def measure(size: int, rounds: int, folder: str, names: list[str]) -> bool:
    """Return True if any bound is missed at this batch size."""
    known = [
        "float32",
        "float32_no_kernel",
        "int8",
        "int8_no_kernel",
        "generation_loop",
        "transformers",
        *_installed(),
    ]
    names = [name for name in known if not names or name in names]
    with ExitStack() as exit_stack:
        environment = {"BENCH_BATCH": str(size), "BENCH_HOME": folder}
        peers = {name: exit_stack.enter_context(Peer(f"bench.decoding:{name}", **environment)) for name in names}
        timings = alternate(rounds, warm_up=1, **peers)
    print(f"\nbatch {size}: tokens/s, median (interquartile range)")
    tokens = size * NEW_TOKENS
    for timing in timings.values():
        low, high = timing.spread
        print(f"{timing.name:<20} {tokens / timing.median:7.1f}   ({tokens / high:.1f} to {tokens / low:.1f})")
    return max([violates(timings, *bound) for bound in BOUNDS.get(size, ())], default=False)


def violates(timings: dict[str, Timing], fast: str, slow: str, minimum: float) -> bool:
    if slow not in timings or fast not in timings:
        return False
    ratio = timings[slow].ratio_to(timings[fast])
    print(f"{fast} over {slow}: {ratio:.2f}, at least {minimum}{'' if ratio >= minimum else '   MISSED'}")
    return ratio < minimum


def _installed() -> list[str]:
    builds = {"transformers": _package("transformers"), "ctranslate2": _package("ctranslate2")}
    builds["llama.cpp"] = llama.build_name() if llama.is_installed() else None
    for name, build in builds.items():
        print(build or f"not measured: {name} is not installed (pip install 'peasy-attention[bench]')")
    names = ["ctranslate2_float32", "ctranslate2_int8"] if builds["ctranslate2"] else []
    return names + (["llama_f32", "llama_q8"] if builds["llama.cpp"] else [])


def _package(name: str) -> str | None:
    """Name the build of a peer: the wheel of a package."""
    return None if find_spec(name) is None else f"{name}: wheel {version(name)}"


@torch.inference_mode()
def decode_step(length: int, use_cache: bool) -> Callable[[], object]:
    """Return a function that computes token number `length`, with the KV cache or from scratch."""
    model, ids = peasy_model("unpacked"), prompts(1, length)[0]
    if not use_cache:
        return lambda: model.forward_varlen([ids], [model.new_state(capacity=length)])
    state = model.new_state(capacity=length)
    model.forward_varlen([ids[:-1]], [state])

    def step() -> object:
        state.crop(length - 1)
        return model.forward_varlen([ids[-1:]], [state])

    return step


def compare_cache(rounds: int) -> bool:
    """Return True if the speedup by the KV cache is below its bound."""
    missed = False
    for length, minimum in MIN_CACHE_SPEEDUP.items():
        with torch.inference_mode():
            timings = alternate(
                rounds, warm_up=1, cached=decode_step(length, True), uncached=decode_step(length, False)
            )
        print(f"\n{length} tokens of context", *timings.values(), sep="\n")
        missed |= violates(timings, "cached", "uncached", minimum)
    return missed


def main() -> int:
    arguments = sys.argv[1:]
    only_cache = arguments[:1] == ["cache"]
    numbers = [int(word) for word in arguments[only_cache:] if word.isdigit()]
    names = [word for word in arguments[only_cache:] if not word.isdigit()]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}")
    with tempfile.TemporaryDirectory() as folder:
        files = os.environ.get("BENCH_HOME") or folder
        if not (Path(files) / "hf").exists():
            make_files(Path(files))
        os.environ |= {"BENCH_HOME": files, "BENCH_BATCH": "1"}
        if only_cache:
            return int(compare_cache(numbers[0] if numbers else 9))
        if not names:
            with Peer("bench.decoding:check_equal") as check:
                check()
        rounds, sizes = (numbers or [5])[0], numbers[1:] or [1, 8]
        return int(max([measure(size, rounds, files, names) for size in sizes]))


if __name__ == "__main__":
    sys.exit(main())
