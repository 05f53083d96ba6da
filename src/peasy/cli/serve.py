"""`peasy serve` and `peasy studio`: API server and local web interface."""

import re
import socket
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, Token

from peasy.checkpoint.ram import parse_amount
from peasy.cli.command import CommandOutput, DocumentResult, Flags, StrList, Switch
from peasy.cli.derive import derive
from peasy.errors import NotFound, ResourceUnavailable, UsageError
from peasy.extras import require_extra
from peasy.generation.limits import EngineLimits
from peasy.views.document import Document, Paragraph


class _CommandLineKey(str):
    """API key that was given on the command line."""


def _convert_api_key(_: object, tokens: Sequence[Token]) -> str:
    return _CommandLineKey(tokens[0].value) if tokens[0].source == "cli" else tokens[0].value


def _read_api_key(path: Path, other: str | None) -> str:
    if other is not None:
        raise UsageError("There are two API keys.", hint="Give --api-key-file, or set PEASY_API_KEY.")
    try:
        key = path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"The API key cannot be read from {path}: {getattr(error, 'strerror', error)}.") from None
    if not key:
        raise UsageError(f"The first line of {path} is empty.", hint="Write the API key there.")
    return key


@derive(EngineLimits, hide=("max_queued_requests",))
def serve(
    engine_limits: partial[EngineLimits],
    *models: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: Annotated[str | None, Parameter(show_default=False, converter=_convert_api_key)] = None,
    api_key_file: Path | None = None,
    allow_host: StrList = None,
    max_queue: int = 256,
    max_memory: str = "8GB",
    weights: Literal["auto", "float32", "bfloat16", "int8"] = "auto",
    shutdown_timeout: float = 30.0,
    log_prompts: Switch = False,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Serve models over HTTP, with an OpenAI-compatible API and peasy's own API.

    Args:
        models: Run names, folders, built-in models or cached hub ids; loaded before the first request.
        host: Address to listen on; any address other than localhost needs an API key.
        port: Port to listen on; 0 picks a free port.
        api_key: API key that clients must send: Authorization: Bearer KEY. Set it as PEASY_API_KEY: every user of this
            machine can see a command line.
        api_key_file: File with the API key on its first line.
        allow_host: Host name that requests may use besides localhost; can be repeated.
        max_queue: Maximum number of queued requests per model; more get HTTP 429 with Retry-After.
        max_memory: Memory limit for the weights of all loaded models; the least recently used one is unloaded.
        weights: Weight format for inference; float32 is exact, int8 is smaller and faster.
        shutdown_timeout: Seconds that running requests have to finish at shutdown.
        log_prompts: Include prompts in the log.
    """
    _require_server()
    from peasy.server.app import build_app
    from peasy.server.guard import host_names, is_loopback
    from peasy.server.metrics import configure_logging
    from peasy.server.model_registry import ModelRegistry
    from peasy.server.server import bind, limit_memory_growth, run_server, url_of

    if isinstance(api_key, _CommandLineKey):
        message = "Warning: --api-key shows in the process list. Use PEASY_API_KEY or --api-key-file instead."
        print(message, file=sys.stderr)
    if api_key_file is not None:
        api_key = _read_api_key(api_key_file, api_key)
    public = not is_loopback(host)
    if public and not api_key:
        hint = "Set PEASY_API_KEY or give --api-key-file, or leave out --host."
        raise UsageError(f"Listening on {host} without an API key would let anyone use this server.", hint=hint)
    limits, memory_bytes = engine_limits(max_queued_requests=max_queue), int(parse_amount(max_memory))
    limit_memory_growth()
    registry = ModelRegistry(models, memory_bytes=memory_bytes, limits=limits, weights=weights, device=flags.device)
    hosts = (*host_names(host), *(allow_host or ()))
    app = build_app(
        registry, pages=False, api_key=api_key, allowed_hosts=hosts, allow_ip_hosts=public,
        max_pending=max_queue, log_prompts=log_prompts,
    )  # fmt: skip
    listening = bind(host, port)
    registry.preload()
    if not flags.quiet:
        configure_logging()
    address, names = url_of(listening, "/v1"), list(registry.names)

    def on_started() -> None:
        if not flags.quiet:
            print(f"Serving {', '.join(names) or 'no models'} at {address} (press Ctrl-C to stop)", file=sys.stderr)

    run_server(app, listening, shutdown_timeout, on_started)
    requests = app.state.metrics.num_requests
    document = Document("Serve", (Paragraph(f"Server stopped after {requests:,} requests."),))
    data = {"address": address, "models": names, "requests": requests}
    return CommandOutput(DocumentResult(document, data), already_printed=not flags.json)


STUDIO_PORT = 7341
"""Port of the studio unless it is taken, so that links to its pages survive a restart."""


def studio(
    *models: str,
    port: int | None = None,
    no_browser: Switch = False,
    allow_host: StrList = None,
    root_path: str = "",
    flags: Flags = Flags(),
) -> CommandOutput:
    """Open the studio: a web interface to all of peasy, on this machine only.

    Args:
        models: Folders of your own models, in addition to those available by name.
        port: Port to listen on; 0 picks a free port. Without it, 7341, or the next free one if that is taken.
        no_browser: Only print the address, do not open a browser.
        allow_host: Host name of a proxy, which requests may use besides localhost; can be repeated.
        root_path: Path below which a proxy serves the studio.
    """
    _require_server()
    from peasy.server.app import build_app
    from peasy.server.guard import LOOPBACK
    from peasy.server.metrics import configure_logging
    from peasy.server.model_registry import ModelRegistry
    from peasy.server.server import limit_memory_growth, run_server, url_of

    limit_memory_growth()
    registry = ModelRegistry(models, device=flags.device, only_given=False)
    listening = _studio_socket(port)
    address = url_of(listening)
    if flags.verbose:
        configure_logging()

    def on_start() -> None:
        if not flags.quiet:
            print(f"The studio is running at {address} (press Ctrl-C to stop)", file=sys.stderr, flush=True)
            if port is None and listening.getsockname()[1] != STUDIO_PORT:
                print(f"Port {STUDIO_PORT} is taken: links to this studio end with it.", file=sys.stderr, flush=True)
        if not no_browser:
            webbrowser.open(address)

    app = build_app(registry, pages=True, allowed_hosts=(*LOOPBACK, *(allow_host or ())), root_path=_clean(root_path))
    run_server(app, listening, 5.0, on_start)
    document = Document("Studio", (Paragraph("The studio was stopped."),))
    return CommandOutput(DocumentResult(document, {"address": address}), already_printed=not flags.json)


def _studio_socket(port: int | None) -> socket.socket:
    """Return a socket on this port; without one on the studio's, or on the next free one if it is taken."""
    from peasy.server.server import bind

    if port is not None:
        return bind("127.0.0.1", port)
    for candidate in range(STUDIO_PORT, STUDIO_PORT + 20):
        with suppress(ResourceUnavailable):
            return bind("127.0.0.1", candidate)
    return bind("127.0.0.1", 0)


def _clean(root_path: str) -> str:
    """Return the path with one slash before it and none after it; empty for no path."""
    if not re.fullmatch(r"[\w./~%+@-]*", root_path, re.ASCII):
        hint = "For example --root-path /user/ada/proxy/8888."
        raise UsageError(f'"{root_path}" is not the path of a URL.', hint=hint)
    return f"/{root_path.strip('/')}" if root_path.strip("/") else ""


def _require_server() -> None:
    for module in ("uvicorn", "torch"):
        require_extra(module, extra="serve")
