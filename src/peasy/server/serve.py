"""`peasy.serve`: the API server from Python."""

from pathlib import Path
from typing import Literal

from peasy.errors import UsageError
from peasy.server.app import build_app
from peasy.server.guard import host_names, is_loopback
from peasy.server.model_registry import ModelRegistry
from peasy.server.server import bind, limit_memory_growth, run_server


def serve(
    *models: str | Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: str | None = None,
    weights: Literal["auto", "float32", "bfloat16", "int8"] = "auto",
) -> None:
    """Serve models over HTTP until Ctrl-C, as `peasy serve` does with its defaults.

    Args:
        models: Run names, folders, built-in models or cached hub ids.
        host: Address to listen on; any address other than localhost needs an API key.
        port: Port to listen on.
        api_key: API key that clients must send.
        weights: Weight format for inference.

    >>> serve("stories", host="0.0.0.0")
    Traceback (most recent call last):
    peasy.errors.UsageError: Listening on 0.0.0.0 without an API key would let anyone use this server.
    """
    if not is_loopback(host) and not api_key:
        message = f"Listening on {host} without an API key would let anyone use this server."
        raise UsageError(message, hint="Give api_key, or leave out host.")
    limit_memory_growth()
    registry = ModelRegistry([str(model) for model in models], weights=weights)
    names, allows_ip = host_names(host), not is_loopback(host)
    app = build_app(registry, pages=False, api_key=api_key, allowed_hosts=names, allow_ip_hosts=allows_ip)
    listener = bind(host, port)
    registry.preload()
    run_server(app, listener)
