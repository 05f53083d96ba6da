"""Opening the door: a port, a server, and an end that lets everybody finish."""

import socket

import uvicorn
from fastapi import FastAPI

from peasy.errors import NoRoom


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 = any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        hint = f"Choose another: --port {port + 1}, or --port 0 for any that is free."
        raise NoRoom(f"Port {port} on {host} is not to be had: {error.strerror}.", hint=hint) from None
    found.set_inheritable(True)
    return found


def run(app: FastAPI, listening: socket.socket) -> None:
    """Answer until somebody says stop."""
    config = uvicorn.Config(app, log_config=None, server_header=False, timeout_graceful_shutdown=30, lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])
