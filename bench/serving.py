"""What a server gives many clients at once, beside llama.cpp's server: one model, each server a process of its own.

    python -m bench.serving [rounds] [float32 | int8 ...]      # default: 3 rounds, float32 and int8

GPT-2-small shape, random weights, prompts of 32 tokens, 64 new ones, greedy, streamed over HTTP to 1 and to 16 clients.
The servers take turns, and every round has prompts of its own, so that nobody has read them before. Every stream of
peasy's is compared with the text that the same model writes offline. A promise that is broken is exit code 1.
"""

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.measure import machine

PROMPT, NEW, CLIENTS = 32, 64, 16
KINDS = {"float32": "f32", "int8": "q8_0"}
PROMISES = {"many": 3.0, "peer": 1.2}
"""So many times one client's rate with all of them, and so many times the peer's."""


def prompts(seed: int, count: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(300, 50_000, (count, PROMPT), generator=draw).tolist()


# clients


@dataclass
class Heard:
    """What a client was told: text, tokens, and when the first of it came."""

    text: str = ""
    tokens: int = 0
    first: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    def hear(self, line: bytes) -> None:
        if not line.startswith(b"data: {"):
            return
        told = json.loads(line[6:])
        assert "error" not in told, told
        for choice in told["choices"]:
            self.text += choice["text"]
            self.first = self.first or time.perf_counter() - self.began
        self.tokens = (told.get("usage") or {}).get("completion_tokens", self.tokens)


async def ask(port: int, prompt: list[int]) -> Heard:
    body = {
        "model": "shape", "prompt": prompt, "max_tokens": NEW, "temperature": 0, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    text = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost:{port}\r\ncontent-type: application/json\r\n"
    heard = Heard()
    writer.write(f"{head}content-length: {len(text)}\r\nconnection: close\r\n\r\n".encode() + text)
    status = await reader.readline()
    assert b" 200 " in status, status
    async for line in reader:
        heard.hear(line.strip())
    writer.close()
    assert heard.tokens == NEW, (heard.tokens, heard.text)
    return heard


def together(port: int, texts: list[list[int]]) -> tuple[float, list[Heard]]:
    """Tokens a second of all clients, and what each one heard."""

    async def all_of_them() -> list[Heard]:
        return await asyncio.gather(*(ask(port, each) for each in texts))

    began = time.perf_counter()
    heard = asyncio.run(all_of_them())
    return len(texts) * NEW / (time.perf_counter() - began), heard


# servers


def free_port() -> int:
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def server(command: list[str], port: int) -> Iterator[int]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as told:
                if told.status == 200:
                    break
            assert process.poll() is None, "the server ended"
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def ours(home: Path, kind: str) -> Any:
    port = free_port()
    words = ["serve", str(home / "shape"), "--port", str(port), "--weights", kind, "--quiet"]
    return server([sys.executable, "-m", "peasy", *words], port)


def theirs(home: Path, kind: str) -> Any:
    port = free_port()
    file = str(home / f"gguf-{KINDS[kind]}" / "model.gguf")
    return server([sys.executable, "-m", "bench.serving", "--llama", file, str(port)], port)


def run_llama(file: str, port: int) -> None:
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path, settings.port = file, port
    settings.n_parallel, settings.n_ctx = CLIENTS, 256 * CLIENTS
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = int(os.environ.get("OMP_NUM_THREADS", 2))
    settings.cache_prompt, settings.verbosity = False, -1
    settings.sampling.ignore_eos = True
    kept = xllamacpp.Server(settings)
    assert kept is not None
    time.sleep(10_000)


def make_files(home: Path) -> None:
    from peasy.checkpoint.gguf import write_gguf
    from peasy.checkpoint.model import save_model
    from peasy.models.build import build
    from peasy.models.preset import preset

    config = preset("gpt2")
    model, words = build(config, seed=0), invented_words(config.vocab_size)
    save_model(home / "shape", model, words)
    for kind in ("f32", "q8_0"):
        write_gguf(home / f"gguf-{kind}", config, model.state_dict(), words, tensor_type=kind)  # type: ignore[arg-type]


def invented_words(count: int) -> Any:
    """A tokenizer for weights that nobody has trained."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from peasy.tokenization import Tokenizer as Words

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    invented = [*letters, "ab", *(f"w{number}" for number in range(count - len(letters) - 1))]
    tokenizer = Tokenizer(models.BPE({word: id for id, word in enumerate(invented)}, [("a", "b")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return Words.from_json(tokenizer.to_str())


# measuring


@dataclass
class Rates:
    """Tokens a second with one client and with all, and seconds to the first token of all, a number each round."""

    one: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    def says(self, name: str) -> str:
        one, many = statistics.median(self.one), statistics.median(self.many)
        spread = f"{min(self.many):.0f} to {max(self.many):.0f}"
        return (
            f"{name:<12} 1 client {one:7.1f} tokens/s   {CLIENTS} clients {many:7.1f} tokens/s ({spread})   "
            f"x{many / one:.2f}   first token of {CLIENTS} after {statistics.median(self.first):.2f} s"
        )


def measure(kind: str, home: Path, rounds: int) -> bool:
    from peasy.commands.generate import pack_weights
    from peasy.commands.load import load

    found = {"peasy": Rates(), "llama.cpp": Rates()}
    said: list[tuple[list[int], str]] = []
    with ours(home, kind) as mine, theirs(home, kind) as other:
        for port in (mine, other):
            together(port, prompts(999, 2))  # nobody's first words are counted
        for turn in range(rounds):
            for name, port in (("peasy", mine), ("llama.cpp", other)):
                one, alone = together(port, prompts(2 * turn, 1))
                many, all_heard = together(port, prompts(2 * turn + 1, CLIENTS))
                found[name].one.append(one)
                found[name].many.append(many)
                found[name].first.append(statistics.median(each.first for each in all_heard))
                if name == "peasy":
                    heard = [*alone, *all_heard]
                    texts = [*prompts(2 * turn, 1), *prompts(2 * turn + 1, CLIENTS)]
                    said += [(text, each.text) for text, each in zip(texts, heard, strict=True)]
    loaded = load(home / "shape")
    model, _ = pack_weights(loaded, kind)
    equal = sum(text == offline(model, loaded.output_tokenizer(), prompt) for prompt, text in said)
    return report(kind, found, equal, len(said))


@torch.inference_mode()
def offline(model: Any, words: Any, prompt: list[int]) -> str:
    from peasy.generation import SamplingParams, generate

    return words.decode(generate(model, [prompt], SamplingParams(max_tokens=NEW))[0])


def report(kind: str, found: dict[str, Rates], equal: int, count: int) -> bool:
    print(f"\n{kind}")
    for name, rates in found.items():
        print(f"  {rates.says(name)}")
    mine, other = found["peasy"], found["llama.cpp"]
    more = statistics.median(many / one for many, one in zip(mine.many, mine.one, strict=True))
    over = statistics.median(a / b for a, b in zip(mine.many, other.many, strict=True))
    print(f"  {CLIENTS} clients over 1: {more:.2f} (promised {PROMISES['many']})")
    print(f"  over llama.cpp with {CLIENTS}: {over:.2f} (promised {PROMISES['peer']})")
    print(f"  streams equal to their offline text: {equal} of {count}")
    return more >= PROMISES["many"] and over >= PROMISES["peer"] and equal == count


def main(words: list[str]) -> int:
    if words[:1] == ["--llama"]:
        run_llama(words[1], int(words[2]))
    rounds = next((int(word) for word in words if word.isdecimal()), 3)
    kinds = [word for word in words if word in KINDS] or list(KINDS)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder))
        kept = [measure(kind, Path(folder), rounds) for kind in kinds]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
