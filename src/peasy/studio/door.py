"""Opening the door: a port, a server, and an end that lets everybody finish."""

import asyncio
import contextlib
import ctypes
import os
import platform
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from peasy.errors import NoRoom
from peasy.studio import protocol

TURN = 0.0005
"""Seconds after which a thread lets another one in. Python's own are ten times as many, and whoever knocks while an
engine is busy would wait for them at every byte that is read or written."""

CONNECTIONS = 1000
"""So many at once; who comes after them is told that there is no room."""

PROGRAMS = 64
"""Products of four or five shapes for a dozen numbers of rows; one that is not there is written again in no time."""

ARENA_MAX = -8
"""The number of this setting in glibc's malloc.h."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 = any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except (OSError, OverflowError) as error:
        found.close()
        said = getattr(error, "strerror", None) or "ports go from 0 to 65535"
        hint = "Choose another: --port 0 takes any that is free."
        raise NoRoom(f"Port {port} on {host} is not to be had: {said}.", hint=hint) from None
    return found


def address_of(listening: socket.socket, path: str = "/") -> str:
    """Where a browser finds it."""
    host, port, *_ = listening.getsockname()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


def run(app: FastAPI, listening: socket.socket, drain: float = 30.0, opened: Callable[[], None] | None = None) -> None:
    """Answer until SIGTERM or Ctrl-C; what goes on then has `drain` seconds to end. A second Ctrl-C is immediate."""
    config = uvicorn.Config(
        app, http=protocol.Protocol, ws="none", loop="asyncio", log_config=None, access_log=False, server_header=False,
        lifespan="on", limit_concurrency=CONNECTIONS, timeout_keep_alive=round(protocol.IDLE),
        h11_max_incomplete_event_size=protocol.HEADERS, timeout_graceful_shutdown=round(drain + 5),
    )  # fmt: skip
    server = Server(config, app, drain, opened)
    sys.setswitchinterval(TURN)
    server.run(sockets=[listening])
    if server.force_exit:
        os._exit(130)
    if app.state.desk.waiting:  # a piece of work that outlasted the drain would hold up Python's own end
        os._exit(0)


def hold_memory() -> None:
    """What keeps a server from growing although nobody asks more of it; to be called before anything computes.

    One heap for all threads: glibc gives each its own, and what one of them freed the others cannot use. And few
    programs of oneDNN: it writes one for every number of rows it meets, and both it and torch would keep a thousand.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(PROGRAMS))
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(ARENA_MAX, 1)


class Server(uvicorn.Server):
    """uvicorn's server, with our end."""

    def __init__(
        self, config: uvicorn.Config, app: FastAPI, drain: float = 30.0, opened: Callable[[], None] | None = None
    ) -> None:
        super().__init__(config)
        self.app, self.drain, self.opened = app, drain, opened

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.opened is not None:
            self.opened()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Nobody else comes in; those who are here are answered, or told in good form that time is up."""
        self.app.state.guard.closing = True
        timer = asyncio.get_running_loop().call_later(self.drain, self.app.state.house.cancel)
        await super().shutdown(sockets)
        timer.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen to signals. uvicorn raises them once more at its end; to us, a drained server has done its duty."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
