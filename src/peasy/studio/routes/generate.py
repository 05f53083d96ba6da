"""What only the page Generate asks: a text watched while it is written, bent chances, and what the cache saves."""

import json
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from peasy.errors import PeasyError
from peasy.studio.reply import Asked, reply
from peasy.studio.routes.model import Name, Text
from peasy.workbench.finding import plain
from peasy.workbench.result import Result
from peasy.workbench.watch import Start, Stop, saving, watch, weigh

router = APIRouter(prefix="/api")

Ids = Annotated[list[Annotated[int, Field(ge=0, le=10_000_000)]], Field(max_length=1024)]


class Bent(Asked):
    """A text, the tokens that were written after it, and how the next one is chosen."""

    model: Name
    text: Text
    written: Ids = Field(default_factory=list)
    temperature: float = Field(0.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, ge=0, le=1)
    min_p: float = Field(0.0, ge=0, le=1)


class Watch(Bent):
    """How much is to be written, and by which chance."""

    max_tokens: int = Field(20, ge=1, le=512)
    seed: int = Field(0, ge=0, lt=2**53)
    top: int | None = Field(8, ge=1, le=1000)


@router.post("/watch", response_class=StreamingResponse)
async def post_watch(request: Request, asked: Watch) -> Response:
    """A text while it is written, as events: `start`, one `token` for each with what it looked at, `stop`."""
    desk, events = request.app.state.desk, _events(request, asked)
    first = await desk.run(lambda: next(events))  # what cannot begin is an error, not a stream

    async def tell() -> AsyncIterator[str]:
        event: str | None = first
        try:
            while event is not None:
                yield event
                event = await desk.run(lambda: next(events, None))
        finally:
            _close(events)

    return StreamingResponse(tell(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _events(request: Request, asked: Watch) -> Generator[str, None, None]:
    begun = False
    try:
        with request.app.state.house.use(asked.model) as loaded:
            for each in watch(loaded, **asked.given()):
                kind = "start" if isinstance(each, Start) else "stop" if isinstance(each, Stop) else "token"
                yield _event(kind, plain(each))
                begun = True
    except PeasyError as error:
        if not begun:
            raise
        yield _event("error", {"code": error.code, "message": error.message, "hint": error.hint})


def _event(kind: str, data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _close(events: Generator[str, None, None]) -> None:
    """Stop the work; where a step still goes on, it is the last, for nobody holds the iterator any more."""
    with suppress(ValueError):
        events.close()


class Chances(Bent):
    """How many of the likeliest tokens to tell."""

    best: int = Field(12, ge=1, le=100)


@router.post("/chances")
async def post_chances(request: Request, asked: Chances) -> Response:
    """What could come next, before and after temperature, top-k and top-p."""

    def work() -> Result:
        with request.app.state.house.use(asked.model) as loaded:
            return weigh(loaded, **asked.given())

    return await reply(request, "chances", asked, work)


class Cache(Asked):
    """A text and what was written after it."""

    model: Name
    text: Text
    written: Ids


@router.post("/cache")
async def post_cache(request: Request, asked: Cache) -> Response:
    """The same tokens with and without the cache: equal, counted, timed."""

    def work() -> Result:
        with request.app.state.house.use(asked.model) as loaded:
            return saving(loaded, asked.text, asked.written)

    return await reply(request, "cache", asked, work)
