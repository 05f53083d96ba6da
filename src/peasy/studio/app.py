"""The application: the verbs under /api, the common clients' API under /v1, and where `pages` are wanted the studio.

`POST /api/<verb>` takes a JSON object with the arguments of the workbench function of that name. The answer is what
`--json` prints; with `"html": true` it also has `html` (the result drawn by `render/html`, styled by `/web/style.css`,
live with the modules of `/web/render/`) and `arithmetic` (by cell); with `"format": "svg"` it is that file.
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
"""What needs no key: whoever watches a server has to know that it lives."""


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
    """The application for the models of a house.

    `key` is asked of everybody; `hosts` are the names it goes by, with `by_number` any address too; `queue` pieces of
    work wait at most for a free hand; `log_prompts` lets the log repeat what was said.
    """

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        feeling = asyncio.create_task(_feel(house, app.state.pulses))
        yield
        feeling.cancel()
        app.state.desk.close()
        house.close()

    app = FastAPI(title="peasy", version=__version__, docs_url=None, redoc_url=None, lifespan=life)
    app.state.house, app.state.desk, app.state.pulses = house, Desk(queue=queue), dict[str, Pulse]()
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
    """Feel the pulse of every engine, once a second."""
    while True:
        there = {name: kept.runner for name, kept in house.kept.items() if kept.runner is not None}
        for name in [name for name, pulse in pulses.items() if there.get(name) is not pulse.runner]:
            del pulses[name]
        for name, runner in there.items():
            pulses.setdefault(name, Pulse(runner)).feel()
        await asyncio.sleep(1.0)


def _speak(app: FastAPI) -> None:
    """Every error leaves as words."""

    @app.exception_handler(PeasyError)
    async def ours(request: Request, error: PeasyError) -> Response:
        return complain(error, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def misasked(request: Request, error: RequestValidationError) -> Response:
        said, param = in_words(error.errors())
        return complain(said, request.url.path, param)

    @app.exception_handler(HTTPException)
    async def theirs(request: Request, error: HTTPException) -> Response:
        said: PeasyError = Malformed(str(error.detail))
        if error.status_code == 404:
            said = NotFound(f"There is no {request.url.path[:100]} here.")
        response = complain(said, request.url.path)
        response.status_code = error.status_code
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Gone)
    async def gone(request: Request, error: Gone) -> Response:
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        LOG.error("a bug", exc_info=error)
        return complain(Fault(f"This is a bug in peasy: {type(error).__name__}."), request.url.path)


def _is_field(part: str | int) -> bool:
    """A place in the body, not the name of one of the types that it could have had."""
    return isinstance(part, int) or (part.isidentifier() and part not in ("body", "str", "int", "float", "bool"))


def in_words(errors: Any) -> tuple[Malformed, str]:
    """What pydantic found, in one line, and the field it is about; what was sent is not repeated."""
    first = errors[0]
    where = ".".join(str(each) for each in first["loc"] if _is_field(each))
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    return Malformed(f"{where[:200] or 'The body'}: {first['msg'][:300]}.{more}"), where[:200]
