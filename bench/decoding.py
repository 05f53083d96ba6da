"""What decoding costs beside transformers, CTranslate2 and llama.cpp: one model, each in a process of its own.

    python -m bench.decoding [rounds] [batch ...]      # default: 5 rounds, batch 1 and 8
    python -m bench.decoding 3 8 int8 llama_q8         # only these, the logits not compared
    python -m bench.decoding cache [rounds]            # with a cache and without, at 256 and 1,000 tokens

GPT-2-small shape, random weights, prompts of 32 tokens, 128 new ones, greedy. Before anything is timed the logits are
compared: float32 to transformers' own. float32 and int8 use the kernel where numba is installed, "plain" is without.
Peers are the extra `bench`; one that is missing is said and left out.
A promise that is broken is exit code 1.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bench.measure import Measured, Peer, alternate, machine

PROMPT, NEW, VOCABULARY = 32, int(os.environ.get("BENCH_NEW", 128)), 50257
THREADS = int(os.environ.get("OMP_NUM_THREADS", 2))
PROMISES = {
    1: (("float32", "transformers", 1.7), ("int8", "llama_q8", 0.9), ("int8_plain", "llama_q8", 0.75),
        ("int8", "ctranslate2_int8", 1.6)),
    8: (("int8", "llama_q8", 1.1), ("int8", "ctranslate2_int8", 1.1), ("int8_tensor", "llama_q8", 1.5),
        ("int8_tensor", "ctranslate2_int8", 1.5)),
}  # fmt: skip
"""At this batch so many times as fast as that one."""
CACHED = {256: 7.0, 1000: 25.0}


def batch() -> int:
    return int(os.environ["BENCH_BATCH"])


def home() -> Path:
    return Path(os.environ["BENCH_HOME"])


def prompts(count: int | None = None, length: int = PROMPT) -> list[list[int]]:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, VOCABULARY, (count or batch(), length), generator=draw).tolist()


# peasy


@cache
def ours(kind: str) -> Any:
    from peasy.checkpoint.huggingface import load_model, read_folder
    from peasy.generation.packed import pack, packing_of

    model = load_model(read_folder(home() / "hf"))
    if kind == "plain":
        return model
    kind, _, way = kind.partition(" ")
    model = pack(model, kind, kernel=False if way == "plain" else None)  # type: ignore[arg-type]
    print(packing_of(model).summary(), file=sys.stderr)
    return model


@torch.inference_mode()
def write(kind: str) -> list[list[int]]:
    """Prompt, then one token at a time: rows of `read`."""
    model, texts = ours(kind), prompts()
    memories = [model.new_state(capacity=PROMPT + NEW) for _ in texts]
    written, new = [], texts
    for _ in range(NEW):
        best = [int(scores.argmax()) for scores in model.forward_varlen(new, memories)]
        written.append(best)
        new = [[token] for token in best]
    return [list(text) for text in zip(*written, strict=True)]


def plain() -> Any:
    return write("plain")


def float32() -> Any:
    return write("float32")


def int8() -> Any:
    return write("int8")


def float32_plain() -> Any:
    """Without the kernel: by what torch brings along."""
    return write("float32 plain")


def int8_plain() -> Any:
    return write("int8 plain")


def int8_tensor() -> Any:
    return write("int8-tensor")


def loop() -> Any:
    """The whole loop of generation, with its choosing and its events."""
    from peasy.generation import SamplingParams, generate

    return generate(ours("float32"), prompts(), SamplingParams(max_tokens=NEW))


# peers


@cache
def theirs() -> Any:
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(home() / "hf").eval()
    model.generation_config.eos_token_id = None
    return model


@torch.inference_mode()
def transformers() -> list[list[int]]:
    ids = torch.tensor(prompts())
    made = theirs().generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, pad_token_id=0
    )
    return made[:, PROMPT:].tolist()


@cache
def generator(kind: str) -> Any:
    import ctranslate2

    return ctranslate2.Generator(str(home() / f"ct2-{kind}"), compute_type=kind, intra_threads=THREADS, inter_threads=1)


def _ctranslate2(kind: str) -> list[list[int]]:
    words = [[str(token) for token in prompt] for prompt in prompts()]
    made = generator(kind).generate_batch(
        words, max_length=NEW, min_length=NEW, sampling_topk=1, include_prompt_in_result=False, end_token=[]
    )
    found = [[int(word) for word in each.sequences[0]] for each in made]
    assert all(len(text) == NEW for text in found), [len(text) for text in found]
    return found


def ctranslate2_float32() -> Any:
    return _ctranslate2("float32")


def ctranslate2_int8() -> Any:
    return _ctranslate2("int8")


@cache
def server(kind: str) -> Any:
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(home() / f"gguf-{kind}" / "model.gguf")
    settings.n_parallel, settings.n_ctx = batch(), 256 * batch()
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = THREADS
    settings.cache_prompt = settings.warmup = False
    settings.verbosity = -1
    return xllamacpp.Server(settings)


def _llama(kind: str) -> list[str]:
    asked = {"n_predict": NEW, "temperature": 0, "ignore_eos": True, "cache_prompt": False}

    async def all_of_them() -> list[Any]:
        call = server(kind).handle_completions
        return await asyncio.gather(*(asyncio.to_thread(call, asked | {"prompt": each}) for each in prompts()))

    made = asyncio.run(all_of_them())
    counts = [each["usage"]["completion_tokens"] for each in made]
    assert counts == [NEW] * batch(), counts
    return [each["choices"][0]["text"] for each in made]


def llama_f32() -> Any:
    return _llama("f32")


def llama_q8() -> Any:
    return _llama("q8_0")


# making the files


def make_files(where: Path) -> None:
    """One random model in every peer's form."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from peasy.checkpoint.huggingface import load_model, read_folder

    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config()).save_pretrained(where / "hf")
    model = load_model(read_folder(where / "hf"))
    make_gguf(model, where)
    for kind in ("float32", "int8"):
        make_ctranslate2(model, where / f"ct2-{kind}", kind)


def make_gguf(model: Any, where: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from peasy.checkpoint.gguf import write_gguf
    from peasy.tokenization import Tokenizer as Words

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    invented = [*letters, "ab", *(f"w{n}" for n in range(VOCABULARY - len(letters) - 1))]
    words = {word: index for index, word in enumerate(invented)}
    tokenizer = Tokenizer(models.BPE(words, [("a", "b")]))  # llama.cpp wants at least one merge
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    for kind in ("f32", "q8_0"):
        words_ = Words.from_json(tokenizer.to_str())
        write_gguf(where / f"gguf-{kind}", model.config, model.state_dict(), words_, tensor_type=kind)  # type: ignore[arg-type]


def make_ctranslate2(model: Any, where: Path, kind: str) -> None:
    try:
        from ctranslate2.specs import Activation, TransformerDecoderModelSpec
    except ImportError:
        return
    spec = TransformerDecoderModelSpec.from_config(12, 12, activation=Activation.GELUTanh)
    spec.decoder.scale_embeddings = False
    spec.decoder.embeddings.weight = _numbers(model.embedding.token.weight)
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.decoder.position_encodings.encodings = _numbers(model.embedding.position.weight)
    _norm(spec.decoder.layer_norm, model.decoder.norm)
    for theirs_, block in zip(spec.decoder.layer, model.decoder.blocks, strict=True):
        look = block.attention
        _norm(theirs_.self_attention.layer_norm, block.attention_norm)
        _norm(theirs_.ffn.layer_norm, block.feedforward_norm)
        _maps(theirs_.self_attention.linear[0], look.query, look.key, look.value)
        _maps(theirs_.self_attention.linear[1], look.output)
        _maps(theirs_.ffn.linear_0, block.feedforward.up)
        _maps(theirs_.ffn.linear_1, block.feedforward.down)
    spec.register_vocabulary([str(token) for token in range(VOCABULARY)])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = str(VOCABULARY - 1)
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    where.mkdir()
    spec.save(str(where))


def _numbers(array: torch.Tensor) -> Any:
    return array.detach().numpy()


def _norm(theirs_: Any, norm: Any) -> None:
    theirs_.gamma, theirs_.beta = _numbers(norm.weight), _numbers(norm.bias)


def _maps(theirs_: Any, *maps: Any) -> None:
    theirs_.weight = _numbers(torch.cat([each.weight for each in maps]))
    theirs_.bias = _numbers(torch.cat([each.bias for each in maps]))


# measuring


@torch.inference_mode()
def agree() -> None:
    """The same logits as transformers, before any time is taken. Called in a process of its own."""
    ids = prompts(3)
    expected = theirs()(torch.tensor(ids)).logits
    exact, near = ("plain", "float32", "float32 plain"), ("int8", "int8 plain", "int8-tensor")
    for kind, most in [(kind, 1e-4) for kind in exact] + [(kind, None) for kind in near]:
        model = ours(kind)
        found = torch.stack(model.forward_varlen(ids, [model.new_state() for _ in ids], all_positions=True))
        far = float((found - expected).abs().max())
        error = float((found - expected).norm() / expected.norm())
        top = float((found.argmax(-1) == expected.argmax(-1)).float().mean())
        print(f"{kind}: largest distance {far:.1e}, relative {error:.2%}, same best {top:.1%}", file=sys.stderr)
        assert most is None or far < most, "float32 must be transformers' own numbers"


def measure(size: int, rounds: int, where: str, names: list[str]) -> bool:
    """Is any promise broken at this batch?"""
    known = ["float32", "float32_plain", "int8", "int8_plain", "int8_tensor", "loop", "transformers", *_installed()]
    names = [name for name in known if not names or name in names]
    with ExitStack() as stay:
        environment = {"BENCH_BATCH": str(size), "BENCH_HOME": where}
        peers = {name: stay.enter_context(Peer(f"bench.decoding:{name}", **environment)) for name in names}
        took = alternate(rounds, warm_up=1, **peers)
    print(f"\nbatch {size}: tokens a second, median (middle half)")
    for each in took.values():
        low, high = each.spread
        print(f"{each.name:<20} {size * NEW / each.median:7.1f}   ({size * NEW / high:.1f} to {size * NEW / low:.1f})")
    return max([broken(took, *promise) for promise in PROMISES.get(size, ())], default=False)


def broken(took: dict[str, Measured], fast: str, slow: str, least: float) -> bool:
    if slow not in took or fast not in took:
        return False
    ratio = took[slow].over(took[fast])
    print(f"{fast} over {slow}: {ratio:.2f}, at least {least}{'' if ratio >= least else '   BROKEN'}")
    return ratio < least


def _installed() -> list[str]:
    from importlib.util import find_spec

    peers = {"ctranslate2": ["ctranslate2_float32", "ctranslate2_int8"], "xllamacpp": ["llama_f32", "llama_q8"]}
    for package in peers:
        if find_spec(package) is None:
            print(f"not measured: {package} is not installed (pip install 'peasy[bench]')")
    return [name for package, names in peers.items() if find_spec(package) is not None for name in names]


@torch.inference_mode()
def one_more(length: int, cached: bool) -> Callable[[], object]:
    """One new token after `length`: with what is remembered, or all over again."""
    model, text = ours("plain"), prompts(1, length)[0]
    if not cached:
        return lambda: model.forward_varlen([text], [model.new_state(capacity=length)])
    memory = model.new_state(capacity=length)
    model.forward_varlen([text[:-1]], [memory])

    def step() -> object:
        memory.crop(length - 1)
        return model.forward_varlen([text[-1:]], [memory])

    return step


def compare_cache(rounds: int) -> bool:
    """Is a token with a cache not so many times as fast?"""
    failed = False
    for length, least in CACHED.items():
        with torch.inference_mode():
            took = alternate(rounds, warm_up=1, cached=one_more(length, True), whole=one_more(length, False))
        print(f"\n{length} tokens of context", *took.values(), sep="\n")
        failed |= broken(took, "cached", "whole", least)
    return failed


def main() -> int:
    asked = sys.argv[1:]
    only_cache = asked[:1] == ["cache"]
    numbers = [int(word) for word in asked[only_cache:] if word.isdigit()]
    names = [word for word in asked[only_cache:] if not word.isdigit()]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}")
    with tempfile.TemporaryDirectory() as folder:
        where = os.environ.get("BENCH_HOME") or folder
        if not (Path(where) / "hf").exists():
            make_files(Path(where))
        os.environ |= {"BENCH_HOME": where, "BENCH_BATCH": "1"}
        if only_cache:
            return int(compare_cache(numbers[0] if numbers else 9))
        if not names:
            with Peer("bench.decoding:agree") as agreeing:
                agreeing()
        rounds, sizes = (numbers or [5])[0], numbers[1:] or [1, 8]
        return int(max([measure(size, rounds, where, names) for size in sizes]))


if __name__ == "__main__":
    sys.exit(main())
