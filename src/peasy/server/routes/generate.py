"""Routes of the Generate page: token stream with attention, next-token probabilities, KV cache savings."""

import json
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from peasy.commands.analysis_result import to_plain
from peasy.commands.generation_stream import (
    GenerationEnd,
    GenerationStart,
    cache_savings,
    next_token_probs,
    stream_generation,
)
from peasy.commands.result import Result
from peasy.errors import PeasyError
from peasy.server.responses import CommandBody, respond
from peasy.server.routes.inference import Name, Text

router = APIRouter(prefix="/api")

EVENT_NAMES: dict[type, str] = {GenerationStart: "start", GenerationEnd: "stop"}

GeneratedIds = Annotated[list[Annotated[int, Field(ge=0, le=10_000_000)]], Field(max_length=1024)]


class NextTokenBody(CommandBody):
    """Prompt, tokens generated so far, and sampling parameters of the next token."""

    model: Name
    text: Text
    generated_ids: GeneratedIds = Field(default_factory=list)
    temperature: float = Field(0.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, ge=0, le=1)
    min_p: float = Field(0.0, ge=0, le=1)


class GenerationStreamBody(NextTokenBody):
    """Length, seed and number of attention weights of a generation stream."""

    max_tokens: int = Field(20, ge=1, le=512)
    seed: int = Field(0, ge=0, lt=2**53)
    top: int | None = Field(8, ge=1, le=1000)


@router.post("/generate/stream", response_class=StreamingResponse)
async def post_generate_stream(request: Request, body: GenerationStreamBody) -> Response:
    """Generate as server-sent events: `start`, a `token` each with its attention, `stop`."""
    worker_pool, events = request.app.state.worker_pool, _events(request, body)
    first = await worker_pool.run(lambda: next(events))  # errors before the first event become error responses

    async def stream() -> AsyncIterator[str]:
        event: str | None = first
        try:
            while event is not None:
                yield event
                event = await worker_pool.run(lambda: next(events, None))
        finally:
            _close_stream(events)

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _events(request: Request, body: GenerationStreamBody) -> Generator[str, None, None]:
    started = False
    try:
        with request.app.state.registry.use(body.model) as loaded:
            for event in stream_generation(loaded, **body.arguments()):
                yield _server_sent_event(EVENT_NAMES.get(type(event), "token"), to_plain(event))
                started = True
    except PeasyError as error:
        if not started:
            raise
        yield _server_sent_event("error", {"code": error.code, "message": error.message, "hint": error.hint})


def _server_sent_event(kind: str, data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _close_stream(events: Generator[str, None, None]) -> None:
    """Stop generating. A step that is still running (ValueError) is the last: nothing else holds the generator."""
    with suppress(ValueError):
        events.close()


class NextTokenProbsBody(NextTokenBody):
    """Number of most likely tokens to return."""

    top: int = Field(12, ge=1, le=100)


@router.post("/next-token")
async def post_next_token(request: Request, body: NextTokenProbsBody) -> Response:
    """Return next-token probabilities before and after temperature, top-k and top-p."""

    def work() -> Result:
        with request.app.state.registry.use(body.model) as loaded:
            return next_token_probs(loaded, **body.arguments())

    return await respond(request, "next-token", body, work)


class CacheSavingsBody(CommandBody):
    """Prompt and generated tokens."""

    model: Name
    text: Text
    generated_ids: GeneratedIds


@router.post("/cache-savings")
async def post_cache_savings(request: Request, body: CacheSavingsBody) -> Response:
    """Decode the same tokens with and without KV cache: compare results, operation counts and times."""

    def work() -> Result:
        with request.app.state.registry.use(body.model) as loaded:
            return cache_savings(loaded, body.text, body.generated_ids)

    return await respond(request, "cache-savings", body, work)
