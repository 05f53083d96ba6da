"""Many short requests through one server process: memory and file descriptors stay flat, nothing is lost."""

import http.client
import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

CLIENTS = 8
MAX_GROWTH = 24 * 2**20
"""Bytes by which the process may grow after its caches are full; a leak of 300 bytes a request would be as much."""


@pytest.fixture
def server(folders, tmp_path):
    """Process and port of a server with one tiny model."""
    process = subprocess.Popen(
        [sys.executable, "-m", "peasy", "serve", str(folders[0]), "--port", "0", "--weights", "float32"],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"PEASY_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    first = process.stderr.readline()
    drain = threading.Thread(target=lambda: [None for _ in process.stderr], daemon=True)
    drain.start()
    yield process, int(re.search(r":(\d+)/v1", first)[1])
    process.kill()
    process.wait()


def resident_bytes(process) -> int:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def num_descriptors(process) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def send(port: int, count: int, wrong: list) -> None:
    """Send requests one after the other, every hundredth on a new connection, every tenth streamed, some invalid."""
    for number in range(count):
        if number % 100 == 0:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        invalid = number % 50 == 7
        body = {"model": "writer", "prompt": [5 + number % 200, 9], "max_tokens": 0 if invalid else 1 + number % 3}
        body |= {"stream": number % 10 == 3, "temperature": "hot" if invalid else 0}
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        if response.status != (400 if invalid else 200) or not data:
            wrong.append((response.status, data[:200]))


def send_all(port: int, count: int) -> None:
    wrong: list = []
    with ThreadPoolExecutor(CLIENTS) as pool:  # a client that fails raises here
        list(pool.map(lambda _: send(port, count // CLIENTS, wrong), range(CLIENTS)))
    assert wrong == []


@pytest.mark.parametrize(
    ("warm_up", "count"),
    [
        pytest.param(400, 800, id="sample"),
        pytest.param(
            20_000, 80_000, id="100,000", marks=[pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(3600)]
        ),
    ],
)
def test_memory_and_descriptors_stay_flat(server, warm_up, count):
    process, port = server
    send_all(port, warm_up)
    before, descriptors = resident_bytes(process), num_descriptors(process)
    send_all(port, count)
    assert resident_bytes(process) - before < MAX_GROWTH
    assert num_descriptors(process) <= descriptors + CLIENTS
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
