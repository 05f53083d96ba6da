"""Server throughput with many clients, against llama.cpp's server: one model, each server in its own process.

    python -m bench.serving [rounds] [float32 | int8 ...]      # default: 3 rounds, float32 and int8, then mixed
    python -m bench.serving mixed                              # only prompts of mixed lengths

GPT-2-small shape, random weights, prompts of 32 tokens, 64 new tokens, greedy, streamed over HTTP to 1 and to 16
clients. The servers alternate, and every round has new prompts, so that none is in a prefix cache. Every stream of
peasy is compared with the text that the same model generates offline. A missed bound is exit code 1.

Mixed: 64 clients of a small model, 4 with prompts of 15,000 tokens and, once these are running, 60 with 2 to 64. The
first tokens of the 60 are compared with those of the same 60 without the long prompts.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench import llama
from bench.measure import machine

PROMPT_TOKENS, NEW_TOKENS, CLIENTS = 32, 64, 16
LONG_TOKENS = 15_000
KINDS = {"float32": "f32", "int8": "q8_0"}
BOUNDS = {"scaling": 3.0, "llama.cpp": 1.2}
"""Smallest throughput of all clients relative to one client, and relative to llama.cpp."""


def prompts(seed: int, count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(300, 50_000, (count, PROMPT_TOKENS), generator=generator).tolist()


# Clients.


@dataclass
class StreamedResponse:
    """Streamed response of one client: text, number of tokens, seconds to the first token."""

    text: str = ""
    num_tokens: int = 0
    first: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    def read_line(self, line: bytes) -> None:
        if not line.startswith(b"data: {"):
            return
        chunk = json.loads(line[6:])
        assert "error" not in chunk, chunk
        for choice in chunk["choices"]:
            self.text += choice["text"]
            self.first = self.first or time.perf_counter() - self.began
        self.num_tokens = (chunk.get("usage") or {}).get("completion_tokens", self.num_tokens)


async def complete(port: int, prompt: list[int], delay: float = 0.0) -> StreamedResponse:
    await asyncio.sleep(delay)
    body = {
        "model": "shape", "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    text = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost:{port}\r\ncontent-type: application/json\r\n"
    response = StreamedResponse()
    writer.write(f"{head}content-length: {len(text)}\r\nconnection: close\r\n\r\n".encode() + text)
    status = await reader.readline()
    assert b" 200 " in status, status
    async for line in reader:
        response.read_line(line.strip())
    writer.close()
    assert response.num_tokens == NEW_TOKENS, (response.num_tokens, response.text)
    return response


def complete_all(port: int, batch: list[list[int]]) -> tuple[float, list[StreamedResponse]]:
    """Send all prompts at once; return tokens per second and the responses."""

    async def gather() -> list[StreamedResponse]:
        return await asyncio.gather(*(complete(port, prompt) for prompt in batch))

    began = time.perf_counter()
    responses = asyncio.run(gather())
    return len(batch) * NEW_TOKENS / (time.perf_counter() - began), responses


def first_tokens(port: int, short: list[list[int]], long: list[list[int]]) -> tuple[list[float], list[float]]:
    """Send the long prompts, a second later the short ones; return the seconds to the first token of short and long."""

    async def gather() -> list[StreamedResponse]:
        sent = [complete(port, prompt) for prompt in long]
        return await asyncio.gather(*sent, *(complete(port, prompt, bool(long)) for prompt in short))

    seconds = [response.first for response in asyncio.run(gather())]
    return seconds[len(long) :], seconds[: len(long)]


# Servers.


def peasy_server(folder: Path, kind: str) -> Any:
    port = llama.free_port()
    arguments = ["serve", str(folder / "shape"), "--port", str(port), "--weights", kind, "--quiet"]
    return llama.running_server([sys.executable, "-m", "peasy", *arguments], port)


def llama_server(folder: Path, kind: str) -> Any:
    threads = int(os.environ.get("OMP_NUM_THREADS", 2))
    return llama.serve(folder / f"gguf-{KINDS[kind]}" / "model.gguf", CLIENTS, threads)


def make_files(folder: Path) -> None:
    from peasy.checkpoint.gguf import write_gguf
    from peasy.checkpoint.model import save_model
    from peasy.models.build import build
    from peasy.models.preset import preset

    config = preset("gpt2")
    model, tokenizer = build(config, seed=0), make_tokenizer(config.vocab_size)
    save_model(folder / "shape", model, tokenizer)
    for kind in ("f32", "q8_0"):
        write_gguf(folder / f"gguf-{kind}", config, model.state_dict(), tokenizer, tensor_type=kind)


def make_small_model(folder: Path) -> None:
    """Write a model without a maximum length."""
    from peasy.checkpoint.model import save_model
    from peasy.models.build import build
    from peasy.models.config import DecoderConfig
    from peasy.nn import config as nn_config

    stack = nn_config.StackConfig(4, nn_config.AttentionConfig(4), nn_config.MLPConfig(1024), nn_config.RMSNormConfig())
    config = DecoderConfig(2_000, 256, stack, None, nn_config.RotaryConfig())
    save_model(folder / "shape", build(config, seed=0), make_tokenizer(config.vocab_size))


def make_tokenizer(vocab_size: int) -> Any:
    """Return a tokenizer with made-up pieces, for random weights."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from peasy.tokenization import Tokenizer as PeasyTokenizer

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, "ab", *(f"w{number}" for number in range(vocab_size - len(alphabet) - 1))]
    tokenizer = Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, [("a", "b")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PeasyTokenizer.from_json(tokenizer.to_str())


# Measurement.


@dataclass
class Throughput:
    """Tokens per second with one client and with all, and seconds to the first token of all, one number per round."""

    one: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    def summary(self, name: str) -> str:
        one, many = statistics.median(self.one), statistics.median(self.many)
        spread = f"{min(self.many):.0f} to {max(self.many):.0f}"
        return (
            f"{name:<12} 1 client {one:7.1f} tokens/s   {CLIENTS} clients {many:7.1f} tokens/s ({spread})   "
            f"x{many / one:.2f}   first token of {CLIENTS} after {statistics.median(self.first):.2f} s"
        )


def measure(kind: str, folder: Path, rounds: int) -> bool:
    from peasy.commands.generate import pack_weights
    from peasy.commands.load import load

    results = {"peasy": Throughput(), "llama.cpp": Throughput()}
    outputs: list[tuple[list[int], str]] = []
    with peasy_server(folder, kind) as peasy_port, llama_server(folder, kind) as llama_port:
        for port in (peasy_port, llama_port):
            complete_all(port, prompts(999, 2))  # warm-up
        for number in range(rounds):
            for name, port in (("peasy", peasy_port), ("llama.cpp", llama_port)):
                one, alone = complete_all(port, prompts(2 * number, 1))
                many, together = complete_all(port, prompts(2 * number + 1, CLIENTS))
                results[name].one.append(one)
                results[name].many.append(many)
                results[name].first.append(statistics.median(response.first for response in together))
                if name == "peasy":
                    batch = [*prompts(2 * number, 1), *prompts(2 * number + 1, CLIENTS)]
                    responses = [*alone, *together]
                    outputs += [(prompt, response.text) for prompt, response in zip(batch, responses, strict=True)]
    loaded = load(folder / "shape")
    model, _ = pack_weights(loaded, kind)
    equal = sum(text == offline(model, loaded.output_tokenizer(), prompt) for prompt, text in outputs)
    return report(kind, results, equal, len(outputs))


@torch.inference_mode()
def offline(model: Any, tokenizer: Any, prompt: list[int]) -> str:
    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams

    return tokenizer.decode(generate(model, [prompt], SamplingParams(max_tokens=NEW_TOKENS))[0])


def report(kind: str, results: dict[str, Throughput], equal: int, count: int) -> bool:
    print(f"\n{kind}")
    for name, rates in results.items():
        print(f"  {rates.summary(name)}")
    ours, theirs = results["peasy"], results["llama.cpp"]
    scaling = statistics.median(many / one for many, one in zip(ours.many, ours.one, strict=True))
    speedup = statistics.median(a / b for a, b in zip(ours.many, theirs.many, strict=True))
    print(f"  {CLIENTS} clients over 1: {scaling:.2f} (at least {BOUNDS['scaling']})")
    print(f"  over llama.cpp with {CLIENTS}: {speedup:.2f} (at least {BOUNDS['llama.cpp']})")
    print(f"  streams equal to their offline text: {equal} of {count}")
    return scaling >= BOUNDS["scaling"] and speedup >= BOUNDS["llama.cpp"] and equal == count


def random_prompts(seed: int, lengths: list[int]) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(300, 2_000, (length,), generator=generator).tolist() for length in lengths]


def measure_mixed() -> bool:
    """Return whether first tokens of short prompts come in time beside long ones."""
    short_lengths, chunk = [2 + 62 * number // 59 for number in range(60)], 128
    with tempfile.TemporaryDirectory() as folder:
        make_small_model(Path(folder))
        with peasy_server(Path(folder), "float32") as port:
            first_tokens(port, random_prompts(0, [10] * 4), [])  # warm-up
            _, (long_alone,) = first_tokens(port, [], random_prompts(1, [LONG_TOKENS]))
            alone, _ = first_tokens(port, random_prompts(2, short_lengths), [])
            beside, long = first_tokens(port, random_prompts(3, short_lengths), random_prompts(4, [LONG_TOKENS] * 4))
    longest_chunk = 2 * long_alone * chunk / LONG_TOKENS  # the last chunk attends to twice as many keys as the mean
    bound = 3 * statistics.median(alone) + longest_chunk
    print(f"\nmixed: 60 clients with 2 to 64 tokens, 4 with {LONG_TOKENS:,}")
    print(f"  first token of the 60 alone: median {statistics.median(alone):.2f} s, last {max(alone):.2f} s")
    print(f"  beside the 4: median {statistics.median(beside):.2f} s (at most {bound:.2f}), last {max(beside):.2f} s")
    print(f"  first token of {LONG_TOKENS:,} tokens: alone {long_alone:.1f} s, of the 4 {max(long):.1f} s")
    return statistics.median(beside) <= bound


def main(arguments: list[str]) -> int:
    if arguments == ["mixed"]:
        print(machine())
        return 0 if measure_mixed() else 1
    rounds = next((int(word) for word in arguments if word.isdecimal()), 3)
    kinds = [word for word in arguments if word in KINDS] or list(KINDS)
    print(machine(), llama.build_name(), sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder))
        passed = [measure(kind, Path(folder), rounds) for kind in kinds]
    passed.append(measure_mixed())
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
