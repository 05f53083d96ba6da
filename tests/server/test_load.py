"""Load tests against a real process: nothing lost, nothing mixed up, no memory growth."""

import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

import pytest
from tests.server.tiny_server import connect, post_bytes, read_events

import peasy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SECONDS = float(os.environ.get("LOAD_SECONDS", "120"))
PROMPTS = [
    "the pizza",
    "hello",
    "user: hello there",
    "the oven and it",
    "good",
    "it tasted good and the pizza came out",
]


def say(text):
    """Print a result (visible with -s)."""
    sys.stdout.write(f"\n{text}\n")


@contextlib.contextmanager
def process(folder, *words):
    """Run `peasy serve` in a subprocess; yield it and its port."""
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "peasy", "serve", str(folder), "--port", str(port), "--quiet", *words]
    running = subprocess.Popen([*command, "--weights", "float32"])
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                break
            time.sleep(0.1)
        yield running, port
    finally:
        running.terminate()
        assert running.wait(60) == 0


async def ask(port, body):
    """Return (status, headers, body, seconds)."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(post_bytes("/v1/completions", body, port, connection="close"))
        head, _, rest = (await reader.read(-1)).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    if headers.get("transfer-encoding") == "chunked":
        rest = _joined(rest)
    return int(status.split()[1]), headers, rest.decode(), time.perf_counter() - began


def _joined(chunks):
    """Join the chunks of a chunked response; an incomplete one is an error."""
    whole = b""
    while True:
        size, _, chunks = chunks.partition(b"\r\n")
        if (count := int(size, 16)) == 0:
            assert chunks == b"\r\n"
            return whole
        whole, chunks = whole + chunks[:count], chunks[count + 2 :]


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        lines = [line.rpartition(" ") for line in response.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def offline(folder):
    """Return the expected text of each request: per prompt one greedy and two sampled."""
    loaded = peasy.load(folder)
    found = {}
    for text in PROMPTS:
        read = len(loaded.encode_prompt(text))
        for seed, tokens in ((None, 24), (1, 30), (2, 7)):
            how = {"temperature": 0.0} if seed is None else {"temperature": 0.9, "seed": seed}
            body = {"model": "writer", "prompt": text, "max_tokens": tokens, **how}
            truth = peasy.generate(loaded, text, max_tokens=tokens, weights="float32", **how)
            found[json.dumps(body)] = (truth.texts[0], read, tokens)
    return found


def read_response(body, content):
    """Return text and usage of a response, and whether it is complete."""
    if not body["stream"]:
        answer = json.loads(content)
        return answer["choices"][0]["text"], answer["usage"], True
    events, ended = read_events(content)
    text = "".join(choice["text"] for event in events for choice in event["choices"])
    return text, events[-1]["usage"], ended


def test_64_concurrent_clients(folders):
    truth = offline(folders[0])
    counts = {"requests": 0, "429": 0}

    async def client(port, chance, end):
        while time.monotonic() < end:
            plain = chance.choice(list(truth))
            stream = chance.random() < 0.7
            body = (
                json.loads(plain) | {"stream": stream} | ({"stream_options": {"include_usage": True}} if stream else {})
            )
            status, _, content, _ = await ask(port, body)
            assert status == 200, content
            text, usage, whole = read_response(body, content)
            assert whole
            assert (text, usage["prompt_tokens"], usage["completion_tokens"]) == truth[plain]
            counts["requests"] += 1

    async def all_of_them(port, seconds):
        end = time.monotonic() + seconds
        await asyncio.gather(*(client(port, random.Random(number), end) for number in range(64)))

    with process(folders[0]) as (_, port):
        asyncio.run(all_of_them(port, SECONDS / 4))
        before = metrics(port)
        asyncio.run(all_of_them(port, SECONDS))
        time.sleep(0.5)
        after = metrics(port)
    grown = after["process_resident_memory_bytes"] / before["process_resident_memory_bytes"]
    held = f"{before['process_open_fds']:.0f} to {after['process_open_fds']:.0f}"
    say(f"{counts['requests']} requests, memory x{grown:.3f}, descriptors {held}")
    assert grown < 1.05
    assert abs(after["process_open_fds"] - before["process_open_fds"]) <= 2
    assert after['peasy_engine_running{model="writer"}'] == 0
    assert after['peasy_engine_reserved_bytes{model="writer"}'] == 0
    assert not [name for name in after if name.startswith("peasy_requests_total") and 'status="5' in name]


def test_500_disconnects(folders):
    late = []
    with process(folders[0]) as (_, port):
        for number in range(500):
            link = connect(port)
            body = {"model": "writer", "prompt": PROMPTS[number % 6], "max_tokens": 100_000, "stream": number % 2 == 0}
            link.sendall(post_bytes("/v1/completions", body, port))
            if body["stream"]:
                link.recv(1)
            else:
                while not metrics(port)['peasy_engine_running{model="writer"}']:
                    pass
            link.close()
            began = time.perf_counter()
            while metrics(port)['peasy_engine_running{model="writer"}']:
                assert time.perf_counter() - began < 5
            late.append(time.perf_counter() - began)
        after = metrics(port)
    late.sort()
    median, most, last = (1e3 * seconds for seconds in (statistics.median(late), late[494], late[-1]))
    say(f"freed after {median:.1f} ms, 99 in 100 within {most:.1f} ms, at most {last:.1f} ms")
    assert late[494] < 0.1
    assert after['peasy_engine_ended_total{model="writer",reason="cancelled"}'] == 500
    assert after['peasy_engine_reserved_bytes{model="writer"}'] == 0


def test_overload_is_refused_quickly(folders):
    body = {"model": "writer", "prompt": "the pizza", "max_tokens": 1500, "temperature": 0}
    truth = peasy.generate(peasy.load(folders[0]), "the pizza", max_tokens=1500, weights="float32").texts[0]

    async def crowd(port):
        room, refused = [], []
        for _ in range(12):  # four run, eight are queued
            room.append(asyncio.create_task(ask(port, body)))
            await asyncio.sleep(0.05)
        for _ in range(120):
            crowd = await asyncio.gather(*(ask(port, body | {"max_tokens": 1}) for _ in range(4)))
            refused += [response for response in crowd if response[0] == 429]
            if room[0].done():
                break
            await asyncio.sleep(0.01)
        return await asyncio.gather(*room), refused

    with process(folders[0], "--max-batch", "4", "--max-queue", "8") as (_, port):
        asyncio.run(ask(port, body))
        admitted, refused = asyncio.run(crowd(port))
    served = [response for response in admitted if response[0] == 200]
    took = sorted(response[3] for response in refused)
    say(f"{len(served)} served, {len(refused)} refused, 99 in 100 within {1e3 * took[int(0.99 * len(took))]:.1f} ms")
    assert len(served) == 12
    assert all(json.loads(response[2])["choices"][0]["text"] == truth for response in served)
    assert len(refused) > 100
    assert all(int(response[1]["retry-after"]) >= 1 for response in refused)
    assert took[int(0.99 * len(took))] < 0.05


def test_slow_senders_do_not_slow_other_clients(folders):
    body = {"model": "writer", "prompt": "the pizza", "max_tokens": 40, "temperature": 0}

    async def healthy(port):
        return statistics.median([(await ask(port, body))[3] for _ in range(60)])

    async def beside(port):
        links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        for number, (_, writer) in enumerate(links):
            if number % 2:
                writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n")

        async def trickle():
            while True:
                await asyncio.sleep(1)
                for number, (_, writer) in enumerate(links):
                    if number % 2:
                        writer.write(b" ")

        dripping = asyncio.create_task(trickle())
        took = await healthy(port)
        began = time.monotonic()
        for reader, _ in links:
            with contextlib.suppress(ConnectionError):
                await reader.read()
        dripping.cancel()
        return took, time.monotonic() - began

    with process(folders[0]) as (_, port):
        asyncio.run(healthy(port))
        rounds = []
        for _ in range(3):
            alone = asyncio.run(healthy(port))
            company, closed = asyncio.run(beside(port))
            rounds.append(company / alone)
            assert closed < 10
        say(f"latency x{statistics.median(rounds):.3f} beside 200 idle and trickling sockets")
        assert statistics.median(rounds) < 1.1
        assert metrics(port)["process_open_fds"] < 60
