"""FastAPI application: commands under /api, OpenAI-compatible API under /v1, and with `pages` the studio.

`POST /api/<command>` takes a JSON object with the arguments of the function of that name in `commands`. The response
is what `--json` prints; with `"html": true` it also has `html` (drawn by `render/html`, styled by `/web/style.css`,
interactive with the modules of `/web/render/`) and `arithmetic` (by cell); with `"format": "svg"` it is that file.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from peasy import __version__
from peasy.config import JsonDict
from peasy.errors import NotFound, PeasyError, UsageError, did_you_mean
from peasy.generation.request import InternalError
from peasy.server.guard import LOOPBACK, Guard, SecurityMiddleware, host_names, is_loopback
from peasy.server.metrics import LOG, MetricsMiddleware, RequestMetrics
from peasy.server.model_registry import ModelRegistry
from peasy.server.responses import MEDIA_TYPES, MalformedRequest, error_response
from peasy.server.routes import routers
from peasy.server.routes.commands import ARRAYS_MEDIA_TYPE
from peasy.server.routes.health import Watchdog
from peasy.server.server import bind, limit_memory_growth, run_server
from peasy.server.session import ClientDisconnected
from peasy.server.static import static_router
from peasy.server.worker_pool import WorkerPool

_PUBLIC_PATHS = ("/health",)
"""Paths that need no API key, so that monitoring works without one."""


def build_app(
    registry: ModelRegistry,
    *,
    pages: bool,
    api_key: str | None = None,
    allowed_hosts: Iterable[str] = LOOPBACK,
    allow_ip_hosts: bool = False,
    max_pending: int = 64,
    log_prompts: bool = False,
    root_path: str = "",
) -> FastAPI:
    """Build the application for the models of a registry.

    `api_key` must be sent with every request. `allowed_hosts` are the accepted Host headers; `allow_ip_hosts` also
    accepts any IP address. `max_pending` bounds the blocking calls. `log_prompts` writes prompts to the access log.
    `root_path`: path of a proxy below which the server appears, whether the proxy removes it from requests or not.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        polling = asyncio.create_task(_poll_watchdogs(registry, app.state.watchdogs))
        yield
        polling.cancel()
        app.state.worker_pool.close()
        registry.close()

    app = FastAPI(title="peasy", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.registry, app.state.worker_pool = registry, WorkerPool(max_pending=max_pending)
    app.state.watchdogs = dict[str, Watchdog]()
    app.state.log_prompts = log_prompts
    app.state.guard = Guard(api_key, allowed_hosts, allow_ip_hosts, public_paths=_PUBLIC_PATHS, root_path=root_path)
    app.state.metrics = RequestMetrics(registry, app.state.worker_pool)
    for router in routers(studio=pages):
        app.include_router(router)
    if pages:
        app.include_router(static_router())
    app.add_middleware(SecurityMiddleware, guard=app.state.guard)
    app.add_middleware(MetricsMiddleware, metrics=app.state.metrics)
    _add_error_handlers(app)
    _set_openapi(app, api_key is not None)
    return app


async def _poll_watchdogs(registry: ModelRegistry, watchdogs: dict[str, Watchdog]) -> None:
    """Poll one watchdog per running engine, once a second."""
    while True:
        threads = {name: entry.engine_thread for name, entry in registry.loaded.items()}
        for name in [name for name, watchdog in watchdogs.items() if threads.get(name) is not watchdog.engine_thread]:
            del watchdogs[name]
        for name, engine_thread in threads.items():
            if engine_thread is not None:
                watchdogs.setdefault(name, Watchdog(engine_thread)).poll()
        await asyncio.sleep(1.0)


def _add_error_handlers(app: FastAPI) -> None:
    """Register handlers that turn every exception into an error response."""

    @app.exception_handler(PeasyError)
    async def handle_peasy_error(request: Request, error: PeasyError) -> Response:
        return error_response(error, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def handle_validation_error(request: Request, error: RequestValidationError) -> Response:
        body = getattr(request.scope.get("route"), "body_field", None)
        fields = [] if body is None else list(getattr(body.field_info.annotation, "model_fields", ()))
        malformed, param = _validation_message(error.errors(), fields)
        return error_response(malformed, request.url.path, param)

    @app.exception_handler(HTTPException)
    async def handle_http_exception(request: Request, error: HTTPException) -> Response:
        peasy_error: PeasyError = MalformedRequest(str(error.detail))
        if error.status_code == 404:
            peasy_error = NotFound(f"No such path: {request.url.path[:100]}.")
        response = error_response(peasy_error, request.url.path)
        response.status_code = error.status_code
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(ClientDisconnected)
    async def handle_disconnect(request: Request, error: ClientDisconnected) -> Response:
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def handle_unexpected_error(request: Request, error: Exception) -> Response:
        LOG.error("unhandled exception", exc_info=error)
        return error_response(InternalError(f"This is a bug in peasy: {type(error).__name__}."), request.url.path)


def _validation_message(errors: Sequence[JsonDict], fields: Sequence[str]) -> tuple[MalformedRequest, str]:
    """Return pydantic's errors as one line, and the field of the first; the values sent are not repeated."""
    no_fields = ("body", "str", "int", "float", "bool")  # it also lists the types of a union
    paths = [[str(part) for part in error["loc"] if part not in no_fields] for error in errors]
    same = [(error, path) for error, path in zip(errors, paths, strict=True) if path[:1] == paths[0][:1]]
    # Of the types of a union, the one that fits best is meant: -1 among ids is a wrong id, not a missing string.
    first, path = max(same, key=lambda pair: (not pair[0]["type"].endswith("_type"), len(pair[1])))
    field = ".".join(part for part in path if part.isidentifier() or part.isdecimal())
    more = f" ({len(errors) - len(same)} more)" if len(errors) > len(same) else ""
    text = first["msg"].removeprefix("Value error, ")[:300]
    hint = did_you_mean(field[:200], fields) if first["type"] == "extra_forbidden" and field not in fields else None
    return MalformedRequest(f"{field[:200] or 'The body'}: {text}.{more}", hint=hint), field[:200]


_ERRORS = {
    "400": "The request is invalid.",
    "401": "The API key is missing or wrong.",
    "403": "Cross-site requests are not allowed.",
    "404": "Not found.",
    "413": "The body is too large.",
    "421": "The host name is not allowed.",
    "429": "The queue is full; Retry-After gives the seconds to wait.",
    "431": "The headers are too large.",
    "500": "Internal error (a bug).",
    "501": "An optional dependency of peasy is not installed.",
    "503": "The server is shutting down.",
    "507": "Not enough memory for this model.",
}


def _set_openapi(app: FastAPI, needs_key: bool) -> None:
    """Replace FastAPI's OpenAPI description by one with peasy's error responses."""

    def openapi() -> JsonDict:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            for path, methods in schema["paths"].items():
                for operation in methods.values():
                    _add_responses(path, operation, needs_key)
            if needs_key:
                schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _add_responses(path: str, operation: JsonDict, needs_key: bool) -> None:
    operation["responses"].pop("422", None)  # peasy responds with 400
    content = operation["responses"]["200"].setdefault("content", {})
    streams = ["text/event-stream"] if path.startswith("/api/") or path.endswith("/completions") else []
    for media_type in (*MEDIA_TYPES.values(), ARRAYS_MEDIA_TYPE, *streams) if path.startswith("/api/") else streams:
        content.setdefault(media_type, {"schema": {}})
    error = {"application/json": {"schema": {"type": "object", "required": ["error"]}}}
    for status, description in _ERRORS.items():
        operation["responses"].setdefault(status, {"description": description, "content": error})
    if needs_key and path != "/health":
        operation["security"] = [{"key": []}]


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
