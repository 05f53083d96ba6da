"""FastAPI application: commands under /api, OpenAI-compatible API under /v1, and with `pages` the studio.

`POST /api/<command>` takes a JSON object with the arguments of the function of that name in `commands`. The response
is what `--json` prints; with `"html": true` it also has `html` (drawn by `render/html`, styled by `/web/style.css`,
interactive with the modules of `/web/render/`) and `arithmetic` (by cell); with `"format": "svg"` it is that file.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from peasy import __version__
from peasy.errors import NotFound, PeasyError
from peasy.studio.desk import Desk
from peasy.studio.guard import LOOPBACK, Guard, Guarded
from peasy.studio.house import House
from peasy.studio.meter import LOG, Meter, Metered
from peasy.studio.page import page_router
from peasy.studio.pulse import Pulse
from peasy.studio.reply import Fault, Malformed, complain
from peasy.studio.routes import routers
from peasy.studio.schema import describe
from peasy.studio.session import Gone

OPEN = ("/health",)
"""Paths that need no API key, so that monitoring works without one."""


def build(
    house: House,
    *,
    pages: bool,
    key: str | None = None,
    hosts: Iterable[str] = LOOPBACK,
    by_number: bool = False,
    queue: int = 64,
    log_prompts: bool = False,
) -> FastAPI:
    """Build the application for the models of a registry.

    `key` is the API key that requests must carry. `hosts` are the accepted Host headers; `by_number` also accepts any
    IP address. `queue` bounds the pending blocking calls. `log_prompts` writes prompts to the access log.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        polling = asyncio.create_task(_feel(house, app.state.watchdogs))
        yield
        polling.cancel()
        app.state.worker_pool.close()
        house.close()

    app = FastAPI(title="peasy", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.registry, app.state.worker_pool = house, Desk(queue=queue)
    app.state.watchdogs = dict[str, Pulse]()
    app.state.log_prompts = log_prompts
    app.state.guard, app.state.meter = Guard(key, hosts, by_number, open=OPEN), Meter()
    for router in routers(studio=pages):
        app.include_router(router)
    if pages:
        app.include_router(page_router())
    app.add_middleware(Guarded, guard=app.state.guard)
    app.add_middleware(Metered, meter=app.state.meter)
    _speak(app)
    describe(app, key is not None)
    return app


async def _feel(house: House, pulses: dict[str, Pulse]) -> None:
    """Poll one watchdog per running engine, once a second."""
    while True:
        running = {name: entry.runner for name, entry in house.kept.items() if entry.runner is not None}
        for name in [name for name, watchdog in pulses.items() if running.get(name) is not watchdog.runner]:
            del pulses[name]
        for name, engine_thread in running.items():
            pulses.setdefault(name, Pulse(engine_thread)).feel()
        await asyncio.sleep(1.0)


def _speak(app: FastAPI) -> None:
    """Register handlers that turn every exception into an error response."""

    @app.exception_handler(PeasyError)
    async def handle_peasy_error(request: Request, error: PeasyError) -> Response:
        return complain(error, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def handle_validation_error(request: Request, error: RequestValidationError) -> Response:
        malformed, param = in_words(error.errors())
        return complain(malformed, request.url.path, param)

    @app.exception_handler(HTTPException)
    async def handle_http_exception(request: Request, error: HTTPException) -> Response:
        peasy_error: PeasyError = Malformed(str(error.detail))
        if error.status_code == 404:
            peasy_error = NotFound(f"No such path: {request.url.path[:100]}.")
        response = complain(peasy_error, request.url.path)
        response.status_code = error.status_code
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Gone)
    async def handle_disconnect(request: Request, error: Gone) -> Response:
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def handle_unexpected_error(request: Request, error: Exception) -> Response:
        LOG.error("unhandled exception", exc_info=error)
        return complain(Fault(f"This is a bug in peasy: {type(error).__name__}."), request.url.path)


def _is_field(part: str | int) -> bool:
    """True for a field of the body; pydantic also lists the types of a union that it tried."""
    return isinstance(part, int) or (part.isidentifier() and part not in ("body", "str", "int", "float", "bool"))


def in_words(errors: Any) -> tuple[Malformed, str]:
    """Return pydantic's errors as one line, and the field of the first; the values sent are not repeated."""
    first = errors[0]
    field = ".".join(str(part) for part in first["loc"] if _is_field(part))
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    return Malformed(f"{field[:200] or 'The body'}: {first['msg'][:300]}.{more}"), field[:200]
