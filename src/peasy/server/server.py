"""uvicorn server: bind a port, run, shut down gracefully; limits memory growth."""

import asyncio
import contextlib
import ctypes
import gc
import os
import platform
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from peasy.errors import ResourceUnavailable
from peasy.server import http_timeouts
from peasy.server.guard import Guard
from peasy.server.model_registry import ModelRegistry

_SWITCH_INTERVAL = 0.0005
"""Thread switch interval in seconds. With Python's default, ten times as long, the event loop would wait for a busy
engine thread at every read and write."""

_ONEDNN_CACHE_CAPACITY = 64
"""Compiled oneDNN primitives kept: four or five matrix shapes at a dozen batch sizes. Recompiling one is cheap."""

_M_ARENA_MAX = -8
"""M_ARENA_MAX in glibc's malloc.h."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to this address; port 0 means any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with its protocol named, asyncio sets TCP_NODELAY; otherwise most responses wait 40 ms for an acknowledgement
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or "ports go from 0 to 65535"
        hint = "Choose another port; --port 0 takes any free one."
        raise ResourceUnavailable(f"Cannot bind {host}:{port}: {reason}.", hint=hint) from None
    return listener


def url_of(listener: socket.socket, path: str = "/") -> str:
    """Return the URL under which a browser reaches this socket."""
    host, port, *_ = listener.getsockname()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


def run_server(
    app: FastAPI, listener: socket.socket, shutdown_timeout: float = 30.0, on_started: Callable[[], None] | None = None
) -> None:
    """Serve until SIGTERM or Ctrl-C, then let running requests finish within `shutdown_timeout` seconds."""
    server = GracefulServer(app, http_timeouts.connection_limit(), shutdown_timeout, on_started)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.freeze()  # every full collection would go through all modules, and hold each thread for tenths of a second
    server.run(sockets=[listener])
    if app.state.worker_pool.working:  # a call that outlasted the drain would block interpreter exit
        os._exit(0)


def limit_memory_growth() -> None:
    """Keep the server's memory from growing under constant load; call before any computation.

    One malloc arena for all threads: glibc gives each thread its own, and memory freed in one cannot be reused by
    another. And a small oneDNN primitive cache: it compiles one per batch size, and it and torch each keep a thousand.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(_ONEDNN_CACHE_CAPACITY))
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


class GracefulServer(uvicorn.Server):
    """uvicorn server that drains running requests at shutdown."""

    def __init__(
        self, app: FastAPI, max_connections: int | None, shutdown_timeout: float = 30.0,
        on_started: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        config = uvicorn.Config(
            app, http=http_timeouts.TimeoutProtocol, ws="none", loop="asyncio", log_config=None, access_log=False,
            server_header=False, lifespan="on", limit_concurrency=max_connections,
            backlog=http_timeouts.ACCEPTED_AT_ONCE, timeout_keep_alive=round(http_timeouts.IDLE_TIMEOUT) or 1,
            h11_max_incomplete_event_size=http_timeouts.MAX_HEAD_BYTES,
            timeout_graceful_shutdown=round(shutdown_timeout + 5),
        )  # fmt: skip
        super().__init__(config)
        self.app, self.shutdown_timeout, self.on_started = app, shutdown_timeout, on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then call `on_started`."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(http_timeouts.WAITING_CONNECTIONS)  # asyncio has one number for this and `ACCEPTED_AT_ONCE`
        if self.on_started is not None:
            self.on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new requests; running ones finish, or end with an error event after `shutdown_timeout` seconds."""
        guard: Guard = self.app.state.guard
        registry: ModelRegistry = self.app.state.registry
        guard.shutting_down = True
        timer = asyncio.get_running_loop().call_later(self.shutdown_timeout, registry.cancel_all)
        await super().shutdown(sockets)
        timer.cancel()
        if self.force_exit:  # before the event loop cancels what runs, with a traceback of each
            os._exit(130)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again at exit as uvicorn does: a drained server exits with 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
