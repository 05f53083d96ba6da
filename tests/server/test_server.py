"""Server process: memory settings, connections, and the addresses of a server started from Python."""

import asyncio
import concurrent.futures
import os
import platform
import signal
import socket
import subprocess
import sys
import time

import pytest
from fastapi.testclient import TestClient

from peasy.server import app as application
from peasy.server import server


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heaps of threads are glibc's")
def test_threads_share_one_malloc_arena():
    """The inverse: by default the same work creates more arenas."""
    work = (
        "import ctypes, sys, threading\n"
        "from peasy.server.server import limit_memory_growth\n"
        "limit_memory_growth() if 'share' in sys.argv else None\n"
        "held, gate = [], threading.Barrier(4)\n"
        "def take():\n    gate.wait()\n    held.extend(bytes(5000) for _ in range(2000))\n    gate.wait()\n"
        "threads = [threading.Thread(target=take) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n[thread.join() for thread in threads]\n"
        "ctypes.CDLL(None).malloc_stats()\n"
    )
    heaps = [
        subprocess.run([sys.executable, "-c", work, *words], capture_output=True, text=True).stderr.count("Arena ")
        for words in (["share"], [])
    ]
    assert heaps[0] == 1 < heaps[1]


def test_onednn_cache_is_bounded_unless_set(monkeypatch):
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "")
    monkeypatch.delenv("LRU_CACHE_CAPACITY")
    server.limit_memory_growth()
    assert (os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"], os.environ["LRU_CACHE_CAPACITY"]) == ("7", "64")


@pytest.mark.parametrize(("host", "status"), [("0.0.0.0", 200), ("127.0.0.1", 421)])
def test_python_server_accepts_its_addresses_as_the_command_does(folders, monkeypatch, host, status):
    apps = []
    monkeypatch.setattr(application, "limit_memory_growth", lambda: None)
    monkeypatch.setattr(application, "run_server", lambda app, listener: (apps.append(app), listener.close()))
    application.serve(folders[0], host=host, port=0, api_key="secret")
    headers = {"Host": "192.0.2.7:8000", "Authorization": "Bearer secret"}
    with TestClient(apps[0]) as client:
        assert client.get("/v1/models", headers=headers).status_code == status


def test_responses_are_sent_without_waiting_for_an_acknowledgement():
    """Headers and body are two writes: without TCP_NODELAY the second one waits for the client's delayed ACK."""

    async def option_of_an_accepted_connection():
        options = asyncio.Queue()

        def read_option(_, writer):
            options.put_nowait(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = server.bind("127.0.0.1", 0)
        async with await asyncio.start_server(read_option, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.close()
            return await options.get()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # the browser of other tests has a loop in this thread
        assert pool.submit(asyncio.run, option_of_an_accepted_connection()).result() != 0


ENDLESS_CALL = """
import sys, threading
from peasy.server import app, server
from peasy.server.model_registry import ModelRegistry

application = app.build_app(ModelRegistry([]), pages=False)

def work():
    print("working", flush=True)
    threading.Event().wait()

@application.get("/api/endless")
async def endless():
    return await application.state.worker_pool.run(work)

listener = server.bind("127.0.0.1", 0)
server.run_server(application, listener, int(sys.argv[1]), lambda: print(listener.getsockname()[1], flush=True))
"""


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_while_a_call_runs_ends_it_without_a_traceback(again):
    seconds = 600 if again else -4  # uvicorn waits five more
    running = subprocess.Popen(
        [sys.executable, "-c", ENDLESS_CALL, str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        port = int(running.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), 120) as link:
            link.sendall(f"GET /api/endless HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert running.stdout.readline() == "working\n"
            running.send_signal(signal.SIGINT)
            while again and running.poll() is None:
                running.send_signal(signal.SIGINT)
                time.sleep(0.05)
            _, err = running.communicate(timeout=120)
            assert "Traceback" not in err
            assert running.returncode == (130 if again else 0)
            if not again:
                answer = link.recv(65536)
                assert answer.startswith(b"HTTP/1.1 503")
                assert b"This server is shutting down" in answer
    finally:
        running.kill()
