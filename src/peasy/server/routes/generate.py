"""Routes of the Generate page: token stream with attention, next-token probabilities, KV cache savings."""

import json
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import Annotated

from annotated_types import Le
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from peasy.commands.generation_stream import (
    GenerationEnd,
    GenerationStart,
    cache_savings,
    next_token_probs,
    stream_generation,
)
from peasy.commands.result import plain_data
from peasy.errors import PeasyError
from peasy.generation.sampling_params import SamplingParams
from peasy.server.derive import add_command_route, derive_body
from peasy.server.responses import CommandBody, Seed, Text

router = APIRouter(prefix="/api")

_EVENT_NAMES: dict[type, str] = {GenerationStart: "start", GenerationEnd: "stop"}
_GeneratedIds = Annotated[list[Annotated[int, Field(ge=0, le=10_000_000)]], Field(max_length=1024)]
_FIELDS = {"text": Text, "generated_ids": _GeneratedIds}
_NOT_STREAMED = ("stop", "logprobs", "logit_bias", "repetition_penalty", "presence_penalty", "frequency_penalty")

StreamBody = derive_body(
    "GenerationStreamBody", stream_generation, options=SamplingParams, hide=("candidates", *_NOT_STREAMED),
    changes=_FIELDS | {"max_tokens": Le(512), "seed": Seed, "top": Le(1000)},
)  # fmt: skip
add_command_route(
    router, "/next-token", next_token_probs, options=SamplingParams, hide=("max_tokens", "seed", *_NOT_STREAMED),
    changes=_FIELDS | {"top": Le(100)},
)  # fmt: skip
add_command_route(router, "/cache-savings", cache_savings, changes=_FIELDS)


@router.post("/generate/stream", response_class=StreamingResponse)
async def post_generate_stream(request: Request, body: StreamBody) -> Response:  # type: ignore[valid-type]
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
            with suppress(ValueError):  # a step that still runs is the last: nothing else holds the generator
                events.close()

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _events(request: Request, body: CommandBody) -> Generator[str, None, None]:
    started = False
    try:
        with request.app.state.registry.use(body.model) as loaded:  # type: ignore[attr-defined]  # a derived field
            for event in stream_generation(loaded, **body.arguments()):
                yield _server_sent_event(_EVENT_NAMES.get(type(event), "token"), plain_data(event, 6))
                started = True
    except PeasyError as error:
        if not started:
            raise
        yield _server_sent_event("error", {"code": error.code, "message": error.message, "hint": error.hint})


def _server_sent_event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"
