"""Routes of the Generate page: token stream with attention, next-token probabilities, KV cache savings."""

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
    """Prompt, tokens generated so far, and sampling parameters of the next token."""

    model: Name
    text: Text
    written: Ids = Field(default_factory=list)
    temperature: float = Field(0.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, ge=0, le=1)
    min_p: float = Field(0.0, ge=0, le=1)


class Watch(Bent):
    """Length, seed and number of attention weights of a generation stream."""

    max_tokens: int = Field(20, ge=1, le=512)
    seed: int = Field(0, ge=0, lt=2**53)
    top: int | None = Field(8, ge=1, le=1000)


@router.post("/watch", response_class=StreamingResponse)
async def post_watch(request: Request, asked: Watch) -> Response:
    """Generate as server-sent events: `start`, a `token` each with its attention, `stop`."""
    worker_pool, events = request.app.state.worker_pool, _events(request, asked)
    first = await worker_pool.run(lambda: next(events))  # errors before the first event become error responses

    async def stream() -> AsyncIterator[str]:
        event: str | None = first
        try:
            while event is not None:
                yield event
                event = await worker_pool.run(lambda: next(events, None))
        finally:
            _close(events)

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _events(request: Request, asked: Watch) -> Generator[str, None, None]:
    started = False
    try:
        with request.app.state.registry.use(asked.model) as loaded:
            for event in watch(loaded, **asked.given()):
                kind = "start" if isinstance(event, Start) else "stop" if isinstance(event, Stop) else "token"
                yield _event(kind, plain(event))
                started = True
    except PeasyError as error:
        if not started:
            raise
        yield _event("error", {"code": error.code, "message": error.message, "hint": error.hint})


def _event(kind: str, data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _close(events: Generator[str, None, None]) -> None:
    """Stop generating. A step that is still running (ValueError) is the last: nothing else holds the generator."""
    with suppress(ValueError):
        events.close()


class Chances(Bent):
    """Number of most likely tokens to return."""

    best: int = Field(12, ge=1, le=100)


@router.post("/chances")
async def post_chances(request: Request, asked: Chances) -> Response:
    """Return next-token probabilities before and after temperature, top-k and top-p."""

    def work() -> Result:
        with request.app.state.registry.use(asked.model) as loaded:
            return weigh(loaded, **asked.given())

    return await reply(request, "chances", asked, work)


class Cache(Asked):
    """Prompt and generated tokens."""

    model: Name
    text: Text
    written: Ids


@router.post("/cache")
async def post_cache(request: Request, asked: Cache) -> Response:
    """Decode the same tokens with and without KV cache: compare results, operation counts and times."""

    def work() -> Result:
        with request.app.state.registry.use(asked.model) as loaded:
            return saving(loaded, asked.text, asked.written)

    return await reply(request, "cache", asked, work)
