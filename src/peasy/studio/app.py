"""The application: the verbs under /api, and where `pages` are wanted the studio itself.

`POST /api/<verb>` takes a JSON object with the arguments of the workbench function of that name. The answer is what
`--json` prints; with `"html": true` it also has `html` (the result drawn by `render/html`, styled by `/web/style.css`,
live with the modules of `/web/render/`) and `arithmetic` (by cell); with `"format": "svg"` it is that file.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from peasy import __version__
from peasy.errors import InvalidInput, NotFound, PeasyError
from peasy.studio.desk import Desk
from peasy.studio.guard import LOOPBACK, Guard, Guarded
from peasy.studio.house import House
from peasy.studio.page import page_router
from peasy.studio.reply import complain
from peasy.studio.routes import routers


def build(
    house: House,
    *,
    pages: bool,
    key: str | None = None,
    hosts: Iterable[str] | None = LOOPBACK,
    queue: int = 64,
    workers: int = 2,
) -> FastAPI:
    """The application for the models of a house; `key` is asked of everybody, `hosts` are the names it goes by."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()
        house.close()

    app = FastAPI(title="peasy", version=__version__, docs_url=None, redoc_url=None, lifespan=life)
    guard, desk = Guard(key, hosts, open=("/health",)), Desk(workers, queue)
    app.state.house, app.state.desk, app.state.guard = house, desk, guard
    for router in routers():
        app.include_router(router)
    if pages:
        app.include_router(page_router())
    app.add_middleware(Guarded, guard=guard)
    _speak(app)
    return app


def _speak(app: FastAPI) -> None:
    """Every error leaves as words."""

    @app.exception_handler(PeasyError)
    async def ours(request: Request, error: PeasyError) -> Response:
        return complain(error)

    @app.exception_handler(RequestValidationError)
    async def misasked(request: Request, error: RequestValidationError) -> Response:
        return complain(in_words(error.errors()))

    @app.exception_handler(HTTPException)
    async def theirs(request: Request, error: HTTPException) -> Response:
        said: PeasyError = InvalidInput(str(error.detail))
        if error.status_code == 404:
            said = NotFound(f"There is no {request.url.path[:100]} here.")
        response = complain(said)
        response.status_code = error.status_code
        return response


def in_words(errors: Any) -> InvalidInput:
    """What pydantic found, in one line; what was sent is not repeated."""
    first = errors[0]
    where = ".".join(str(each) for each in first["loc"] if each != "body")
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    return InvalidInput(f"{where or 'The body'}: {first['msg']}.{more}")
